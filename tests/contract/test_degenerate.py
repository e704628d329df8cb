"""Learning from almost nothing: every method ends in a clear error or in finite predictions."""

import pytest
import torch
from torch import Tensor

from goal.backbone.tail import normalise
from goal.common.errors import GoalError
from goal.methods.base import LabelledStage, Method, Stage, infer_all
from goal.methods.registry import METHODS
from tests.contract.test_every_method import TEST, learn
from tests.planted import WIDTH, PlantedTokens, planted_classes, small_method

Counts = dict[int, int]

BASE: Counts = {0: 8, 1: 8, 2: 8}
NEXT: Counts = {0: 3, 1: 3, 2: 3, 3: 8, 4: 8}

# What stage 0 and stage 1 hold, and how many new classes stage 1 is said to bring.
CASES: dict[str, tuple[Counts, Counts, int]] = {
    "one base class": ({0: 8}, {0: 3, 1: 8, 2: 8}, 2),
    "one image per class": ({0: 1, 1: 1, 2: 1}, {0: 1, 3: 1, 4: 1}, 2),
    "one image": (BASE, {3: 1}, 1),
    "only new": (BASE, {3: 8, 4: 8}, 2),
    "only old": (BASE, {0: 6, 1: 6, 2: 6}, 2),
    "more classes than images": (BASE, {3: 1, 4: 1}, 3),
    "wildly unbalanced": ({0: 40, 1: 1, 2: 2}, {0: 1, 3: 60, 4: 1}, 2),
}


class ConstantTokens(PlantedTokens):
    """Images of one grey: the same tokens for all, whatever their class."""

    def __init__(self, classes: Tensor, level: float) -> None:
        super().__init__(classes)
        same = torch.full((len(classes), 4, WIDTH), level)
        self.views = [normalise(same, 1e-6) for _ in range(3)]


def stages(
    tokens: type[PlantedTokens], base: Counts, then: Counts, new: int, **kind: float
) -> list[Stage]:
    labels, later = planted_classes(base), planted_classes(then)
    known = len(base)
    return [
        LabelledStage(0, 0, known, 2, tokens(labels, **kind), labels),  # type: ignore[arg-type]
        Stage(1, known, new, 2, tokens(later, **kind)),  # type: ignore[arg-type]
    ]


def live(name: str, given: list[Stage]) -> None:
    method = small_method(name)
    for stage in given:
        try:
            learn(method, stage)
        except GoalError as error:
            assert len(str(error)) > 20
            return
        check(method, stage)


def check(method: Method, stage: Stage) -> None:
    assert method.num_classes == stage.num_seen
    for key, value in method.state_dict().items():
        if value.is_floating_point():
            assert bool(torch.isfinite(value).all()), key
    outputs = infer_all(method, TEST)
    assert bool(torch.isfinite(outputs.features).all())
    predicted = method.predict(outputs)
    assert predicted.shape == (len(TEST),)
    assert int(predicted.min()) >= 0 and int(predicted.max()) < stage.num_seen


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("case", CASES)
def test_odd_counts(case: str, name: str) -> None:
    live(name, stages(PlantedTokens, *CASES[case]))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_nothing_but_duplicates(name: str) -> None:
    live(name, stages(PlantedTokens, BASE, NEXT, 2, noise=0.0))


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_constant_images(level: float, name: str) -> None:
    live(name, stages(ConstantTokens, BASE, NEXT, 2, level=level))
