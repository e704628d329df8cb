"""Rehearsals of several kinds: base classes play new ones, and no test image is looked at.

Every draw divides the base classes anew into known and new ones. Every fifth labelled image of a
class plays a test image. What a stage holds differs from kind to kind: many or few images of known
classes, large, small or uneven new classes.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.discovery.running import Cut
from goal.common.arrays import IntArray
from goal.data.images import Dataset, Subset, position_in_class
from goal.protocol.rehearsal import TEST_EVERY
from goal.protocol.stages import StageIds, build_stages, class_order, targets
from goal.settings.settings import Settings


@dataclass(frozen=True)
class Kind:
    """One kind of rehearsal.

    Attributes:
        name: What it is called.
        dataset: Whose base classes play.
        known: Classes with labels.
        new: New classes of each stage.
        held: Images of each known class that are kept for stages.
        shown: Images of each class known by then that a stage shows, out of those.
        sizes: Images of the smallest and of the largest new class; geometric between them.
        stages: Stages after stage 0.
    """

    name: str
    dataset: str
    known: int
    new: int
    held: int
    shown: int
    sizes: tuple[int, int]
    stages: int = 2

    def images(self) -> IntArray:
        """Images of each new class of a stage."""
        return np.geomspace(*self.sizes, self.new).round().astype(np.int64)


KINDS = (
    Kind("photographs", "cifar100", 30, 10, 16, 6, (80, 80)),
    Kind("uneven", "cifar100", 30, 10, 16, 6, (8, 80)),
    Kind("small", "cifar100", 30, 10, 16, 5, (25, 25)),
    Kind("mostly known", "cifar100", 30, 5, 24, 24, (25, 80)),
    Kind("few known", "cifar100", 10, 20, 16, 6, (40, 80), 1),
    Kind("birds", "cub", 60, 20, 5, 5, (18, 18)),
    Kind("uneven birds", "cub", 60, 20, 5, 5, (4, 18)),
    Kind("digits", "digits", 2, 1, 20, 15, (100, 100)),
)


def rehearsed(kind: Kind, dataset: Dataset, settings: Settings, draw: int) -> Cut:
    """Cut base classes into the stages of a rehearsal."""
    order = class_order(len(dataset.class_names), settings.protocol)
    labels = dataset.train.labels, dataset.test.labels
    ids = build_stages(*labels, len(dataset.class_names), settings.protocol)[0].train_ids
    images = Subset(dataset.train, ids, targets(labels[0], order)[ids])
    rng = np.random.default_rng((draw, settings.protocol.base_classes))
    place = np.argsort(rng.permutation(settings.protocol.base_classes))
    classes = place[images.labels]
    test = position_in_class(classes) % TEST_EVERY == TEST_EVERY - 1
    return Cut(images, images, classes, classes, _stages(kind, classes, test, rng))


def _stages(
    kind: Kind, classes: IntArray, test: IntArray, rng: np.random.Generator
) -> list[StageIds]:
    pools = [
        rng.permutation(np.flatnonzero((classes == label) & ~test))
        for label in range(kind.known + kind.stages * kind.new)
    ]
    held = [pool[: kind.held] for pool in pools[: kind.known]]
    drawn = [pool[kind.held :] for pool in pools[: kind.known]]
    stages = []
    for index in range(kind.stages + 1):
        known = 0 if index == 0 else kind.known + (index - 1) * kind.new
        seen = kind.known + index * kind.new
        if index:
            drawn = [rng.permutation(pool)[: kind.shown] for pool in held]
            drawn += [rng.permutation(pool)[: kind.shown] for pool in pools[kind.known : known]]
            sizes = rng.permutation(kind.images())
            drawn += [pool[:size] for pool, size in zip(pools[known:seen], sizes, strict=True)]
        shown = np.flatnonzero(test & (classes < seen))
        stages.append(StageIds(index, np.sort(np.concatenate(drawn)), shown, known, seen - known))
    return stages
