"""Stages of features through the very code that `goal run` uses, without its folder of files."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.paper.references import Oracle, OracleStage
from goal.backbone.tokens import TokenSource
from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import Dataset, Images
from goal.evaluation.metrics import StageScore, summarise
from goal.evaluation.scoring import evaluate
from goal.features.bank import FeatureBank
from goal.features.given import known_features
from goal.features.source import FeatureTail
from goal.learning.learner import Learner, room_for
from goal.methods.base import LabelledStage, Stage
from goal.protocol.rehearsal import rehearse
from goal.protocol.stages import StageIds, build_stages, class_order, targets
from goal.settings.settings import Settings

WAYS = ("known", "auto", "oracle")
Look = Callable[[Learner, Stage, torch.Tensor], None]

_SCORES = tuple(field for field in StageScore.__dataclass_fields__)


@dataclass(frozen=True)
class Outcome:
    """What a run scored: averages over the stages after stage 0, and what was counted in each.

    Attributes:
        all: Accuracy on all test images.
        base: The same on base classes.
        novel: The same on classes discovered since.
        forgetting: Largest loss of base accuracy against stage 0.
        counted: Classes added in each stage.
        seconds: Time.
    """

    all: float
    base: float
    novel: float
    forgetting: float
    counted: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Cut:
    """Images cut into stages, with the class of each as the place of its appearance."""

    train: Images
    test: Images
    train_targets: IntArray
    test_targets: IntArray
    stages: Sequence[StageIds]


def as_run(dataset: Dataset, settings: Settings) -> Cut:
    """Cut a dataset as `goal run` does; `protocol.rehearsal` is followed."""
    protocol = settings.protocol
    if protocol.rehearsal:
        dataset, protocol = rehearse(dataset, protocol)
    labels = dataset.train.labels, dataset.test.labels
    classes = len(dataset.class_names)
    order = class_order(classes, protocol)
    stages = build_stages(*labels, classes, protocol)
    return Cut(
        dataset.train, dataset.test, targets(labels[0], order), targets(labels[1], order), stages
    )


def run(cut: Cut, settings: Settings, way: str, look: Look = lambda *_: None) -> Outcome:
    """Run GOAL+ on features.

    Args:
        cut: Stages of features.
        settings: Those of the method, and the seed.
        way: Whether it is told how many classes are new (``known``), counts them (``auto``), or is
            given their true images (``oracle``).
        look: Called after every stage, with the truth that no method sees.
    """
    learner = _learner(cut, settings, way)
    scores, counted, began = [], [], time.perf_counter()
    for ids in cut.stages:
        tokens = learner.tokens(cut.train, ids.train_ids, ids.index)
        truth = torch.from_numpy(cut.train_targets[ids.train_ids])
        stage = _stage(learner, ids, tokens, truth, way)
        counted.append(stage.num_new)
        if stage.num_new:
            learner.learn(stage, [])
            if way == "auto":
                learner.note_classes(stage)
        look(learner, stage, truth)
        shown = learner.bank.open(cut.test, ids.test_ids, augmented_views=False)
        judged = cut.test_targets[ids.test_ids]
        found = evaluate(learner.method, shown, judged, ids, cut.stages[0].num_new)
        scores.append(StageScore(**{name: found.record[name] for name in _SCORES}))
    summary = summarise(scores)
    average = {name: summary["average"][name] for name in ("all", "base", "novel")}
    return Outcome(
        **average,
        forgetting=summary["forgetting"]["happy"],
        counted=tuple(counted[1:]),
        seconds=time.perf_counter() - began,
    )


def _learner(cut: Cut, settings: Settings, way: str) -> Learner:
    known = known_features(cut.train)
    assert known is not None
    bank = FeatureBank(known.origin, Path(), None, Reporter())
    stages = cut.stages
    room = stages[-1].num_seen if way != "auto" else room_for(settings, stages[0].num_new)
    tail = FeatureTail(known.origin.width)
    learner = Learner(settings, tail, bank, room, torch.device("cpu"), Reporter())
    if way == "oracle":
        certain = settings.method.model_copy(update={"caution": 0.0})
        method = Oracle.build(certain, tail, room, torch.Generator().manual_seed(settings.seed))
        learner.method = method.eval()
    return learner


def _stage(
    learner: Learner, ids: StageIds, tokens: TokenSource, truth: torch.Tensor, way: str
) -> Stage:
    if ids.index == 0:
        return LabelledStage(0, 0, ids.num_new, 1, tokens, truth)
    stage = Stage(ids.index, ids.num_known, ids.num_new, 1, tokens)
    if way == "oracle":
        return OracleStage(**vars(stage), truth=truth)
    if way == "auto":
        new = learner.count_new(tokens, ids.index).count
        return replace(stage, num_known=learner.method.num_classes, num_new=new)
    return stage
