"""What every method promises, one function each: give a name, get an AssertionError if broken."""

import copy
import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

import torch
from torch import Tensor

from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer
from goal.methods.base import Method, Outputs, Stage, infer_all, restore
from goal.storage import checkpoint
from goal.testing.planted import (
    PlantedTokens,
    base_stage,
    next_stage,
    planted_classes,
    small_method,
)
from goal.testing.teaching import (
    TEST,
    TRAINING,
    assert_finite_state,
    assert_predicts,
    assert_same_state,
    expect,
    learn,
    learned,
)


def same_seed_same_result(name: str) -> None:
    """The same seed gives the same state and the same predictions, to the bit."""
    first, second = learned(name), learned(name)
    assert_same_state(first, second)
    predicted = [method.predict(infer_all(method, TEST)) for method in (first, second)]
    expect(
        torch.equal(predicted[0], predicted[1]),
        "the same seed gives other predictions: draw from the given generator alone",
    )


def interrupted_equals_uninterrupted(name: str, stop_after: int = 1) -> None:
    """A stage that was stopped after an epoch and resumed from its file ends in the same bits."""
    whole = small_method(name)
    learn(whole, base_stage())
    if not whole.trains(1):
        raise SkipTest("takes no gradient steps after stage 0: there is no epoch to stop at")
    halted = copy.deepcopy(whole)
    stage = next_stage()
    learn(whole, stage)
    with _scratch() as saved:
        _stop(halted, stage, stop_after, saved)
        state = checkpoint.load(saved)
    resumed = small_method(name, seed=123)
    restore(resumed, state["method"])
    rng = torch.Generator()
    trainer = StageTrainer(resumed, stage, TRAINING, rng)
    trainer.load_state_dict(state["trainer"])
    trainer.run(lambda _: None, Reporter())
    resumed.end_stage(stage, rng)
    assert_same_state(whole, resumed)


class _Stop(Exception):
    pass


@contextmanager
def _scratch() -> Iterator[Path]:
    """A place for a checkpoint, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "checkpoint.pt")


def _stop(method: Method, stage: Stage, epoch: int, saved: Path) -> None:
    """Learn a stage up to an epoch, save, and leave it there."""
    rng = torch.Generator().manual_seed(0)
    method.begin_stage(stage, rng)
    trainer = StageTrainer(method, stage, TRAINING, rng)

    def stop(record: dict[str, object]) -> None:
        if record["epoch"] == epoch:
            state = {"method": method.state_dict(), "trainer": trainer.state_dict()}
            checkpoint.save(saved, state)
            raise _Stop

    try:
        trainer.run(stop, Reporter())
    except _Stop:
        return
    raise AssertionError(f"the stage had no epoch {epoch} to stop after")


def one_image_does_not_depend_on_another(name: str) -> None:
    """What `infer` says of an image does not depend on the other images of the batch."""
    method = learned(name)
    whole = infer_all(method, TEST)
    single = infer_all(method, TEST, batch_size=1)
    order = torch.randperm(len(TEST), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        shuffled = method.infer(TEST.clean(order))
    for field in dataclasses.fields(Outputs):
        full, one, mixed = (getattr(o, field.name) for o in (whole, single, shuffled))
        if full is None:
            continue
        near = 1e-5
        if field.name == "scores":  # log-densities go into the thousands
            near *= max(1.0, float(full.abs().max()))
        text = f"the {field.name} of an image depend on the images beside it"
        expect(torch.allclose(full, one, atol=near), f"{text}, or on how many there are")
        expect(torch.allclose(full[order], mixed, atol=near), text)


def an_image_alone_gets_the_same_class_scores(name: str) -> None:
    """One score per class for an image by itself; probabilities sum to 1 and keep the winner."""
    method = learned(name)
    tokens = PlantedTokens(planted_classes({0: 3, 1: 3, 3: 3, 4: 3}, seed=3), seed=7)
    together = method.class_scores(infer_all(method, tokens))
    alone = method.class_scores(infer_all(method, tokens, batch_size=1))
    expect(
        together.shape == (12, 5),
        f"class_scores has the shape {tuple(together.shape)} for 12 images and 5 classes",
    )
    near = 1e-4 * max(float(together.abs().max()), 1.0)
    expect(
        torch.allclose(alone, together, rtol=0, atol=near),
        "the class scores of an image depend on the images beside it",
    )
    shares = method.probabilities(together)
    expect(torch.allclose(shares.sum(dim=1), torch.ones(12)), "probabilities do not sum to 1")
    expect(
        torch.equal(shares.argmax(dim=1), together.argmax(dim=1)),
        "the likeliest class is not the one with the highest score",
    )


def growing_leaves_the_scores_of_known_classes_alone(name: str) -> None:
    """Beginning a stage adds classes and changes no score of a known one."""
    method = small_method(name)
    learn(method, base_stage())
    before = infer_all(method, TEST).scores
    if before is None:
        raise SkipTest("scores no classes")
    method.begin_stage(next_stage(), torch.Generator().manual_seed(0))
    after = infer_all(method, TEST).scores
    if after is None or after.shape[1] < before.shape[1]:
        raise AssertionError("begin_stage takes the scores of known classes away")
    expect(
        torch.allclose(before, after[:, : before.shape[1]], rtol=0, atol=1e-6),
        "begin_stage changes the scores of known classes",
    )


def only_tail_and_heads_train_and_each_gets_a_gradient(name: str) -> None:
    """What asks for a gradient gets one, the tail too; what is frozen never moves."""
    method = small_method(name)
    for stage in (base_stage(), next_stage()):
        rng = torch.Generator().manual_seed(0)
        method.begin_stage(stage, rng)
        if method.trains(stage.index):
            frozen = _frozen(method)
            _train_and_look(method, stage, rng)
            _expect_unmoved(frozen, method)
            method.end_stage(stage, rng)
            # An anchor is a copy of the tail, which may be taken as a stage ends.
            kept = {key: old for key, old in frozen.items() if not key.startswith("anchor.")}
            _expect_unmoved(kept, method)
        else:
            method.end_stage(stage, rng)


def _frozen(method: Method) -> dict[str, Tensor]:
    """Copies of all parameters that ask for no gradient."""
    frozen = {key: p.clone() for key, p in method.named_parameters() if not p.requires_grad}
    expect("tail.final_norm.weight" in frozen, "the tail's final norm must stay frozen")
    return frozen


def _train_and_look(method: Method, stage: Stage, rng: torch.Generator) -> None:
    """Train a stage; everything that asks for a gradient must have got one."""
    trained = {key for key, p in method.named_parameters() if p.requires_grad}
    expect(
        any(key.startswith("tail.") for key in trained),
        "a stage that `trains` says is trained leaves the tail frozen",
    )
    moved: set[str] = set()

    def look(_: object) -> None:
        for key, p in method.named_parameters():
            if key in trained and p.grad is not None and bool((p.grad != 0).any()):
                moved.add(key)

    trainer = StageTrainer(method, stage, TRAINING, rng)
    method.fit_stage(stage, lambda: trainer.run(look, Reporter()))
    expect(
        moved == trained,
        f"these ask for a gradient and never get one: {', '.join(sorted(trained - moved))}",
    )


def _expect_unmoved(frozen: dict[str, Tensor], method: Method) -> None:
    for key, old in frozen.items():
        expect(torch.equal(old, method.get_parameter(key)), f"{key} is frozen, but it moved")


def odd_stages_work(name: str, counts: dict[int, int]) -> None:
    """A stage of odd images (class: how many), then an ordinary one: finite, and classes exist."""
    method = small_method(name)
    learn(method, base_stage())
    learn(method, next_stage(counts, num_new=1))
    learn(method, next_stage({0: 3, 3: 3, 4: 9, 5: 9}, num_known=4, num_new=2))
    assert_predicts(method, 6)
    assert_finite_state(method)


def base_classes_are_learned(name: str) -> None:
    """Easy labelled classes are named right, nine times out of ten."""
    method = small_method(name)
    learn(method, base_stage(epochs=30))
    stage = base_stage()
    outputs = infer_all(method, stage.tokens)
    if outputs.scores is None:
        raise SkipTest("predicts clusters, which have no names")
    right = float((method.predict(outputs) == stage.labels).float().mean())
    expect(right > 0.9, f"of easy labelled images only {right:.0%} are named right")


def state_dict_is_the_whole_method(name: str) -> None:
    """A checkpoint of the state dict, loaded into a new method, gives the same predictions."""
    method = learned(name)
    other = small_method(name, seed=77)
    with _scratch() as saved:
        checkpoint.save(saved, method.state_dict())
        restore(other, checkpoint.load(saved))
    assert_same_state(method, other)
    ours, theirs = (one.predict(infer_all(one, TEST)) for one in (method, other))
    expect(
        torch.equal(ours, theirs),
        "a method restored from its state dict predicts otherwise: keep all state in it",
    )
