"""The loop's settings that must not change what is learned, or hardly."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from goal.backbone.tokens import Tokens
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer, onto
from goal.methods.base import Batch, Method
from goal.methods.registry import METHODS
from goal.settings.training import TrainingSettings
from goal.testing.planted import PlantedTokens, base_stage, next_stage, small_method


def learned(name: str, **settings: Any) -> tuple[Method, list[dict[str, Any]]]:
    training = TrainingSettings(base_lr=0.05, stage_lr=0.05, batch_size=10, **settings)
    method = small_method(name)
    records: list[dict[str, Any]] = []
    for stage in (base_stage(epochs=2), next_stage(epochs=2)):
        rng = torch.Generator().manual_seed(0)
        method.begin_stage(stage, rng)
        trainer = StageTrainer(method, stage, training, rng)
        if method.trains(stage.index):
            trainer.run(records.append, Reporter())
        method.end_stage(stage, rng)
    return method, records


@pytest.mark.parametrize("name", ["goal", "frost", "vanilla_gcd"])
def test_reading_ahead_changes_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    original = PlantedTokens.pair

    def pair(self: PlantedTokens, *arguments: Any) -> tuple[Tokens, Tokens]:
        readers.append(threading.current_thread())
        return original(self, *arguments)

    monkeypatch.setattr(PlantedTokens, "pair", pair)
    plain, history = learned(name)
    assert set(readers) == {threading.main_thread()}
    readers.clear()
    ahead, same_history = learned(name, prefetch=True)
    assert threading.main_thread() not in readers
    assert history == same_history
    for key, tensor in plain.state_dict().items():
        assert torch.equal(tensor, ahead.state_dict()[key]), key


def test_an_error_of_the_reading_thread_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(*_: Any) -> tuple[Tokens, Tokens]:
        raise GoalError("The disk is gone")

    monkeypatch.setattr(PlantedTokens, "pair", pair)
    with pytest.raises(GoalError, match="disk is gone"):
        learned("goal", prefetch=True)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_bfloat16_steps_keep_float32_weights_and_nearly_the_losses(name: str) -> None:
    exact, records = learned(name)
    rough, rough_records = learned(name, precision="bfloat16")
    for key, tensor in exact.state_dict().items():
        assert rough.state_dict()[key].dtype == tensor.dtype
        assert bool(torch.isfinite(rough.state_dict()[key]).all()), key
    if records:
        first, same = records[0], rough_records[0]
        assert same == pytest.approx(first, rel=0.1, abs=0.1)
        changed = [exact.state_dict()[key] for key, _ in exact.named_parameters()]
        kept = [rough.state_dict()[key] for key, _ in rough.named_parameters()]
        assert any(not torch.equal(a, b) for a, b in zip(changed, kept, strict=True))


def test_tokens_move_to_a_device() -> None:
    tokens = Tokens(torch.ones(2, 3, 4), torch.zeros(2, 4))
    moved = onto(tokens, torch.device("cpu"))
    for ours, theirs in ((moved.normalised, tokens.normalised), (moved.cls, tokens.cls)):
        assert isinstance(ours, Tensor) and torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("simgcd", 10, [10, 10, 10]),  # 36 images: the last six wait for another epoch
        ("happy", 10, [10, 10, 10]),
        ("simgcd", 18, [18, 18]),
        ("simgcd", 50, [36]),  # there is no other batch
        ("vanilla_gcd", 10, [10, 10, 10, 6]),
    ],
)
def test_some_methods_take_full_batches_only(
    name: str, size: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    method, stage, seen = small_method(name), base_stage(epochs=1), []
    rng = torch.Generator().manual_seed(0)
    method.begin_stage(stage, rng)
    losses = method.losses

    def watch(batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        seen.append(len(batch))
        return losses(batch, rng)

    monkeypatch.setattr(method, "losses", watch)
    training = TrainingSettings(base_lr=0.01, batch_size=size)
    StageTrainer(method, stage, training, rng).run(lambda _: None, Reporter())
    assert seen == expected
