"""What every method promises. A method added to the dict gets all of this."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer
from goal.methods.base import Batch, Method, Outputs, Stage, infer_all, restore
from goal.methods.registry import METHODS
from goal.settings.training import TrainingSettings
from goal.storage import checkpoint
from tests.planted import (
    PlantedTokens,
    base_stage,
    next_stage,
    planted_classes,
    small_method,
)

TRAINING = TrainingSettings(base_lr=0.05, stage_lr=0.05, batch_size=10)
TEST = PlantedTokens(planted_classes({0: 5, 1: 5, 2: 5, 3: 5, 4: 5}), seed=7)

every_method = pytest.mark.parametrize("name", sorted(METHODS))


def learn(method: Method, stage: Stage, seed: int = 0) -> StageTrainer:
    rng = torch.Generator().manual_seed(seed)
    method.begin_stage(stage, rng)
    trainer = StageTrainer(method, stage, TRAINING, rng)
    if method.trains(stage.index):
        method.fit_stage(stage, lambda: trainer.run(lambda _: None, Reporter()))
    method.end_stage(stage, rng)
    return trainer


def learned(name: str) -> Method:
    method = small_method(name)
    learn(method, base_stage())
    learn(method, next_stage())
    return method


def assert_same_state(first: Method, second: Method) -> None:
    ours, theirs = first.state_dict(), second.state_dict()
    assert ours.keys() == theirs.keys()
    for key, tensor in ours.items():
        assert torch.equal(tensor, theirs[key]), key


@every_method
def test_same_seed_same_result(name: str) -> None:
    first, second = learned(name), learned(name)
    assert_same_state(first, second)
    predicted = [method.predict(infer_all(method, TEST)) for method in (first, second)]
    assert torch.equal(predicted[0], predicted[1])


@every_method
@pytest.mark.parametrize("stop_after", [0, 1, 2])
def test_interrupted_equals_uninterrupted(name: str, stop_after: int, tmp_path: Path) -> None:
    whole = small_method(name)
    learn(whole, base_stage())
    if not whole.trains(1):
        pytest.skip("takes no gradient steps after stage 0: there is no epoch to stop at")
    halted = copy.deepcopy(whole)
    stage = next_stage()
    learn(whole, stage)

    class Stop(Exception):
        pass

    rng = torch.Generator().manual_seed(0)
    halted.begin_stage(stage, rng)
    trainer = StageTrainer(halted, stage, TRAINING, rng)
    saved = tmp_path / "checkpoint.pt"

    def stop(record: dict[str, object]) -> None:
        if record["epoch"] == stop_after + 1:
            state = {"method": halted.state_dict(), "trainer": trainer.state_dict()}
            checkpoint.save(saved, state)
            raise Stop

    with pytest.raises(Stop):
        trainer.run(stop, Reporter())
    state = checkpoint.load(saved)
    resumed = small_method(name, seed=123)
    restore(resumed, state["method"])
    rng = torch.Generator()
    trainer = StageTrainer(resumed, stage, TRAINING, rng)
    trainer.load_state_dict(state["trainer"])
    trainer.run(lambda _: None, Reporter())
    resumed.end_stage(stage, rng)
    assert_same_state(whole, resumed)


@every_method
def test_one_image_does_not_depend_on_another(name: str) -> None:
    method = learned(name)
    whole = infer_all(method, TEST)
    single = infer_all(method, TEST, batch_size=1)
    order = torch.randperm(len(TEST), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        shuffled = method.infer(TEST.clean(order))
    for field in dataclasses.fields(Outputs):
        full, one, mixed = (getattr(o, field.name) for o in (whole, single, shuffled))
        if full is not None:
            near = 1e-5
            if field.name == "scores":  # log-densities go into the thousands
                near *= max(1.0, float(full.abs().max()))
            assert torch.allclose(full, one, atol=near)
            assert torch.allclose(full[order], mixed, atol=near)


@every_method
def test_growing_leaves_the_scores_of_known_classes_alone(name: str) -> None:
    method = small_method(name)
    learn(method, base_stage())
    before = infer_all(method, TEST).scores
    if before is None:
        pytest.skip("scores no classes")
    method.begin_stage(next_stage(), torch.Generator().manual_seed(0))
    after = infer_all(method, TEST).scores
    assert after is not None and after.shape[1] >= before.shape[1]
    assert torch.allclose(before, after[:, : before.shape[1]], rtol=0, atol=1e-6)


def test_unlabelled_stages_and_batches_have_no_place_for_a_label() -> None:
    for kind in (Batch, Stage):
        names = {field.name for field in dataclasses.fields(kind)}
        assert not any(word in name for name in names for word in ("label", "target", "truth"))


@every_method
def test_only_tail_and_heads_train_and_each_gets_a_gradient(name: str) -> None:
    method = small_method(name)
    for stage in (base_stage(), next_stage()):
        rng = torch.Generator().manual_seed(0)
        method.begin_stage(stage, rng)
        trained = {key for key, p in method.named_parameters() if p.requires_grad}
        if not method.trains(stage.index):
            method.end_stage(stage, rng)
            continue
        assert {key.partition(".")[0] for key in trained} >= {"tail"}
        frozen = {k: v.clone() for k, v in method.named_parameters() if not v.requires_grad}
        assert "tail.final_norm.weight" in frozen
        moved: set[str] = set()
        trainer = StageTrainer(method, stage, TRAINING, rng)

        def look(
            _: object, model: Method = method, names: set[str] = trained, into: set[str] = moved
        ) -> None:
            for key, p in model.named_parameters():
                if key in names and p.grad is not None and bool((p.grad != 0).any()):
                    into.add(key)

        method.fit_stage(stage, lambda run=trainer.run, see=look: run(see, Reporter()))  # type: ignore[misc]
        assert moved == trained
        for key, old in frozen.items():
            assert torch.equal(old, method.get_parameter(key)), key
        method.end_stage(stage, rng)
        for key, old in frozen.items():
            if not key.startswith("anchor."):  # DYDM's copy of the tail, taken as stage 0 ends
                assert torch.equal(old, method.get_parameter(key)), key


@every_method
@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({3: 12}, id="one new class, no old samples"),
        pytest.param({0: 4, 1: 4, 2: 4, 3: 12}, id="one new class"),
        pytest.param({0: 6, 1: 6, 2: 6}, id="no new sample"),
        pytest.param({3: 2}, id="two images"),
    ],
)
def test_odd_stages_work(name: str, counts: dict[int, int]) -> None:
    method = small_method(name)
    learn(method, base_stage())
    learn(method, next_stage(counts, num_new=1))
    learn(method, next_stage({0: 3, 3: 3, 4: 9, 5: 9}, num_known=4, num_new=2))
    assert method.num_classes == 6
    predicted = method.predict(infer_all(method, TEST))
    assert predicted.shape == (len(TEST),)
    assert predicted.min() >= 0 and predicted.max() < 6
    for tensor in method.state_dict().values():
        assert bool(torch.isfinite(tensor).all())


@every_method
def test_base_classes_are_learned(name: str) -> None:
    method = small_method(name)
    learn(method, base_stage(epochs=30))
    stage = base_stage()
    predicted = method.predict(infer_all(method, stage.tokens))
    if infer_all(method, stage.tokens).scores is None:
        pytest.skip("predicts clusters, which have no names")
    assert (predicted == stage.labels).float().mean() > 0.9


@every_method
def test_state_dict_is_the_whole_method(name: str, tmp_path: Path) -> None:
    method = learned(name)
    checkpoint.save(tmp_path / "c.pt", method.state_dict())
    other = small_method(name, seed=77)
    restore(other, checkpoint.load(tmp_path / "c.pt"))
    assert_same_state(method, other)
    assert torch.equal(
        method.predict(infer_all(method, TEST)), other.predict(infer_all(other, TEST))
    )
