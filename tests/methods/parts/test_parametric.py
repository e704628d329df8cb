"""What methods with a classifier share: the teacher's features, kept for a stage."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tokens import RepeatingSource, Tokens
from goal.methods.base import Batch, Stage
from goal.methods.parts.parametric import Parametric
from goal.testing.planted import PlantedTokens, base_stage, planted_classes, small_method, tail_of
from goal.testing.teaching import learn


class BankedTokens(PlantedTokens):
    """Planted tokens that say which of their two views they are."""

    def drawn_views(self) -> range:
        return range(1, 3)

    def view(self, number: int, positions: Tensor) -> Tokens:
        tokens = self._view(number, positions)
        return Tokens(tokens.normalised, tokens.cls, torch.full_like(positions, number))


def begun(name: str) -> tuple[Parametric, Stage]:
    """A method that has learned stage 0, begun the next and moved a little."""
    method = small_method(name)
    assert isinstance(method, Parametric)
    learn(method, base_stage())
    tokens = BankedTokens(planted_classes({0: 4, 1: 4, 2: 4, 3: 12, 4: 12}), seed=1)
    assert isinstance(tokens, RepeatingSource)
    stage = Stage(1, 3, 2, 3, tokens)
    method.begin_stage(stage, torch.Generator().manual_seed(0))
    with torch.no_grad():
        tail_of(method).out.bias.add_(0.3)
    return method, stage


def batch_of(stage: Stage) -> Batch:
    tokens, positions = stage.tokens, torch.tensor([7, 0, 3, 3, 11])
    assert isinstance(tokens, BankedTokens)
    return Batch(tokens.view(2, positions), tokens.view(1, positions), positions)


def previous(method: Parametric, batch: Batch) -> Tensor:
    return torch.cat([F.normalize(method.teacher(v), dim=1) for v in (batch.first, batch.second)])


@pytest.mark.parametrize("name", ["happy", "goal", "simgcd_plus"])
def test_kept_features_of_the_teacher_are_its_features(name: str) -> None:
    method, stage = begun(name)
    batch = batch_of(stage)
    expected = previous(method, batch)
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    asked: list[int] = []
    method.teacher.register_forward_hook(lambda *_: asked.append(1))
    assert torch.allclose(method.previous_features(batch), expected, atol=1e-5)
    method.losses(batch, torch.Generator().manual_seed(0))
    method.begin_epoch(stage, 1, torch.Generator().manual_seed(0))
    assert not asked


def test_the_next_stage_asks_the_next_teacher() -> None:
    method, stage = begun("happy")
    rng = torch.Generator().manual_seed(0)
    method.begin_epoch(stage, 0, rng)
    method.end_stage(stage, rng)
    following = Stage(2, 5, 1, 3, stage.tokens)
    method.begin_stage(following, rng)
    method.begin_epoch(following, 0, rng)
    batch = batch_of(following)
    moved = torch.cat([F.normalize(method.tail(v), dim=1) for v in (batch.first, batch.second)])
    assert torch.allclose(method.previous_features(batch), moved, atol=1e-5)


def test_new_crops_are_shown_to_the_teacher() -> None:
    method, stage = begun("happy")
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    positions = torch.arange(4)
    fresh = Batch(*stage.tokens.pair(positions, torch.Generator().manual_seed(1)), positions)
    assert torch.allclose(method.previous_features(fresh), previous(method, fresh), atol=1e-5)
