"""Teach a small method a stage, and compare what it has become."""

import torch

from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer
from goal.methods.base import Method, Stage, infer_all
from goal.settings.training import TrainingSettings
from goal.testing.planted import (
    PlantedTokens,
    base_stage,
    next_stage,
    planted_classes,
    small_method,
)

TRAINING = TrainingSettings(base_lr=0.05, stage_lr=0.05, batch_size=10)
TEST = PlantedTokens(planted_classes({0: 5, 1: 5, 2: 5, 3: 5, 4: 5}), seed=7)


def learn(method: Method, stage: Stage, seed: int = 0) -> StageTrainer:
    """Teach a stage from beginning to end."""
    rng = torch.Generator().manual_seed(seed)
    method.begin_stage(stage, rng)
    trainer = StageTrainer(method, stage, TRAINING, rng)
    if method.trains(stage.index):
        method.fit_stage(stage, lambda: trainer.run(lambda _: None, Reporter()))
    method.end_stage(stage, rng)
    return trainer


def learned(name: str) -> Method:
    """Return a method that has learned a labelled and an unlabelled stage."""
    method = small_method(name)
    learn(method, base_stage())
    learn(method, next_stage())
    return method


def expect(held: object, promise: str) -> None:
    """Raise an error that names the promise unless it is held, whatever Python's flags."""
    if not held:
        raise AssertionError(promise)


def assert_same_state(first: Method, second: Method) -> None:
    """Raise an error unless two methods have the same parameters and buffers, to the bit."""
    ours, theirs = first.state_dict(), second.state_dict()
    expect(
        ours.keys() == theirs.keys(),
        f"one state dict lacks {sorted(ours.keys() ^ theirs.keys())}: register all state as "
        "parameters and buffers when the method is built",
    )
    for key, tensor in ours.items():
        expect(torch.equal(tensor, theirs[key]), f"the states differ in {key}")


def assert_finite_state(method: Method) -> None:
    """Raise an error if a parameter or buffer holds NaN or infinity."""
    for key, tensor in method.state_dict().items():
        expect(bool(torch.isfinite(tensor).all()), f"{key} of the state holds NaN or infinity")


def assert_predicts(method: Method, classes: int) -> None:
    """Raise an error unless the method names one of so many classes for every test image."""
    expect(
        method.num_classes == classes,
        f"num_classes is {method.num_classes} after stages with {classes} classes",
    )
    outputs = infer_all(method, TEST)
    expect(bool(torch.isfinite(outputs.features).all()), "infer gives NaN or infinite features")
    predicted = method.predict(outputs)
    expect(
        predicted.shape == (len(TEST),),
        f"predict answers with shape {tuple(predicted.shape)} for {len(TEST)} images",
    )
    low, high = int(predicted.min()), int(predicted.max())
    expect(
        low >= 0 and high < classes,
        f"predict names classes {low} to {high}, but there are {classes}, from 0",
    )
