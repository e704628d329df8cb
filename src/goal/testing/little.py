"""Learning from almost nothing: a method ends in a clear error or in finite predictions."""

import torch
from torch import Tensor

from goal.backbone.tail import normalise
from goal.common.errors import GoalError
from goal.methods.base import LabelledStage, Stage
from goal.testing.planted import WIDTH, PlantedTokens, planted_classes, small_method
from goal.testing.teaching import assert_finite_state, assert_predicts, expect, learn

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
        """Give every image of `classes` tokens of one level."""
        super().__init__(classes)
        same = torch.full((len(classes), 4, WIDTH), level)
        self.views = [normalise(same, 1e-6) for _ in range(3)]


def odd_counts(name: str, case: str) -> None:
    """Stages with strange numbers of images; see `CASES`."""
    base, then, new = CASES[case]
    labels, later = planted_classes(base), planted_classes(then)
    _live(name, labels, PlantedTokens(labels), PlantedTokens(later), new)


def nothing_but_duplicates(name: str) -> None:
    """All images of a class are the same."""
    labels, later = planted_classes(BASE), planted_classes(NEXT)
    _live(name, labels, PlantedTokens(labels, noise=0.0), PlantedTokens(later, noise=0.0), 2)


def constant_images(name: str, level: float) -> None:
    """All images of all classes are the same, of one grey."""
    labels, later = planted_classes(BASE), planted_classes(NEXT)
    _live(name, labels, ConstantTokens(labels, level), ConstantTokens(later, level), 2)


def _live(name: str, labels: Tensor, base: PlantedTokens, then: PlantedTokens, new: int) -> None:
    """Learn both stages, unless one ends in a clear error."""
    method = small_method(name)
    known = int(labels.max()) + 1
    stages = (LabelledStage(0, 0, known, 2, base, labels), Stage(1, known, new, 2, then))
    for stage in stages:
        try:
            learn(method, stage)
        except GoalError as error:
            expect(len(str(error)) > 20, f"the error should say what to do, not just '{error}'")
            return
        assert_finite_state(method)
        assert_predicts(method, stage.num_seen)
