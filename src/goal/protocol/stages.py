"""Who sees which image when: labels and settings in, stages of index arrays out.

Stage 0 holds labelled images of the base classes. Every later stage holds a mixture of base
classes, classes discovered earlier and its own new classes, and nobody says which image is what:
a `StageIds` carries positions in the dataset and class counts, never labels.

Each draw has a generator of its own, keyed by seed, stage, class and purpose. What stage 2 takes
of class 7 is therefore the same in a run of five stages and in a run of ten.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import Field

from goal.common.arrays import BoolArray, IntArray
from goal.common.errors import GoalError
from goal.common.section import Section
from goal.data.listing import text_of

UNUSED = -1
"""Target of a class that no stage introduces."""


class ProtocolSettings(Section):
    """How a dataset is cut into stages. The defaults suit the ten classes of ``digits``.

    Attributes:
        base_classes: Classes that stage 0 shows with labels.
        stages: Unlabelled stages after stage 0.
        new_per_stage: New classes of each stage; None shares the rest out evenly.
        labelled_fraction: Part of a base class's images that stage 0 gets (rounded down).
        unlabelled_new: Images per new class and stage; None takes all.
        unlabelled_base: Images per base class and stage, out of those stage 0 left over.
        unlabelled_discovered: Images per stage of each class that an earlier stage introduced.
        class_order_seed: Shuffles the novel classes. 0 is the order of the published tables.
        sampling_seed: Chooses the images.
        base_list: Name of a shipped list of base classes (``cub-ssb``), or a text file of class
            ids (the dataset's, from 0), one per line; ``#`` starts a comment. None makes the
            first ids the base classes.
        no_repeats: Never give an unlabelled image twice; a class that runs out gives the rest.
        train_per_class: Keep at most so many training images per class (for short runs).
        test_per_class: Keep at most so many test images per class.
        rehearsal: Instead of the experiment, run so many stages of a smaller one made of stage
            0's images alone, to choose settings by (see `goal.protocol.rehearsal`); 0 is the real
            thing.
        estimate_new: Do not tell methods how many classes a stage brings; count them in its
            images (see `goal.counting.counter`).
        queries: Questions about images of each later stage that a simulated person answers from
            their labels, for methods that ask (see `goal.protocol.person`). No other label is
            seen after stage 0.
    """

    base_classes: int = Field(default=4, gt=0)
    stages: int = Field(default=3, ge=0)
    new_per_stage: int | None = Field(default=None, gt=0)
    labelled_fraction: float = Field(default=0.8, gt=0, le=1)
    unlabelled_new: int | None = Field(default=None, gt=0)
    unlabelled_base: int = Field(default=10, ge=0)
    unlabelled_discovered: int = Field(default=10, ge=0)
    class_order_seed: int = Field(default=0, ge=0, lt=2**32)
    sampling_seed: int = Field(default=0, ge=0)
    base_list: str | None = None
    no_repeats: bool = False
    train_per_class: int | None = Field(default=None, gt=0)
    test_per_class: int | None = Field(default=None, gt=0)
    rehearsal: int = Field(default=0, ge=0)
    estimate_new: bool = False
    queries: int = Field(default=0, ge=0)


@dataclass(frozen=True, eq=False)
class StageIds:
    """One stage, without a single label.

    Attributes:
        index: 0 for the labelled stage, then 1, 2, ...
        train_ids: Positions in the training set, ascending, shape (N,).
        test_ids: Positions in the test set of every image of a class seen so far, ascending.
        num_known: Classes known before this stage (0 at stage 0).
        num_new: Classes this stage adds (at stage 0 the base classes).
    """

    index: int
    train_ids: IntArray
    test_ids: IntArray
    num_known: int
    num_new: int

    @property
    def num_seen(self) -> int:
        """Classes known once this stage is over."""
        return self.num_known + self.num_new


class _Purpose(IntEnum):
    """Last part of a generator's key. Changing a value changes every published split."""

    TRAIN_CAP = 0
    TEST_CAP = 1
    LABELLED = 2
    UNLABELLED = 3


def class_order(num_classes: int, settings: ProtocolSettings) -> IntArray:
    """Dataset class ids in the order of their appearance, shape (base + stages * new,).

    Base classes come first, ascending. The novel ids follow as numpy's legacy seeded shuffle
    leaves them, which is what the published runs did; the global generator is not touched.
    A class's position in this order is its target, its id everywhere else in the package.

    Raises:
        GoalError: If the settings ask for classes the dataset does not have.
    """
    new = _new_per_stage(num_classes, settings)
    base = _base_classes(num_classes, settings)
    novel = np.setdiff1d(np.arange(num_classes, dtype=np.int64), base)
    np.random.RandomState(settings.class_order_seed).shuffle(novel)
    return np.concatenate([base, novel[: settings.stages * new]])


def targets(labels: IntArray, order: IntArray) -> IntArray:
    """Replace dataset labels by their positions in `order`; classes it lacks become -1."""
    labels = np.asarray(labels, dtype=np.int64)
    size = 1 + max(int(labels.max(initial=0)), int(order.max(initial=0)))
    if labels.min(initial=0) < 0:
        raise GoalError(f"A label is {labels.min()}, but class ids start at 0. Check the labels.")
    position = np.full(size, UNUSED, dtype=np.int64)
    position[order] = np.arange(len(order))
    return position[labels]


def build_stages(
    train_labels: IntArray, test_labels: IntArray, num_classes: int, settings: ProtocolSettings
) -> tuple[StageIds, ...]:
    """Cut a dataset into stage 0 and `settings.stages` unlabelled stages.

    Args:
        train_labels: Dataset class id of every training image, shape (N,).
        test_labels: Dataset class id of every test image, shape (M,).
        num_classes: Classes of the dataset; labels lie in 0..num_classes-1.
        settings: What to draw.

    Returns:
        The stages in order. Draws are without replacement within a stage and independent
        between stages, so an image may return later unless `settings.no_repeats` is set.

    Raises:
        GoalError: If labels or settings do not fit together; the text says what to change.
    """
    order = class_order(num_classes, settings)
    train = _pools(train_labels, num_classes, settings, _Purpose.TRAIN_CAP, order)
    test = _pools(test_labels, num_classes, settings, _Purpose.TEST_CAP, order)
    base = order[: settings.base_classes].tolist()
    labelled = {label: _labelled(train[label], label, settings) for label in base}
    for label, ids in labelled.items():
        train[label] = np.setdiff1d(train[label], ids)

    stages = [_stage(0, labelled.values(), test, order[: len(base)], num_known=0)]
    given = np.zeros(len(train_labels), dtype=np.bool_)
    new = _new_per_stage(num_classes, settings)
    for index in range(1, settings.stages + 1):
        known = stages[-1].num_seen
        seen = order[: known + new]
        drawn = _draw_stage(index, seen.tolist(), known, train, given, settings)
        stages.append(_stage(index, drawn, test, seen, known))
        if settings.no_repeats:
            given[stages[-1].train_ids] = True
    return tuple(stages)


def _stage(
    index: int, drawn: Iterable[IntArray], test: list[IntArray], seen: IntArray, num_known: int
) -> StageIds:
    return StageIds(
        index=index,
        train_ids=np.sort(np.concatenate(list(drawn))),
        test_ids=np.sort(np.concatenate([test[label] for label in seen])),
        num_known=num_known,
        num_new=len(seen) - num_known,
    )


def _draw_stage(
    index: int,
    seen: list[int],
    known: int,
    train: list[IntArray],
    given: BoolArray,
    settings: ProtocolSettings,
) -> list[IntArray]:
    """Draw from every class in `seen`, except images that `given` marks as spent."""
    drawn = []
    for position, label in enumerate(seen):
        if position < settings.base_classes:
            wanted: int | None = settings.unlabelled_base
        elif position < known:
            wanted = settings.unlabelled_discovered
        else:
            wanted = settings.unlabelled_new
        pool = train[label][~given[train[label]]]
        drawn.append(_take(pool, wanted, index, label, _Purpose.UNLABELLED, settings))
    return drawn


def _take(
    pool: IntArray,
    wanted: int | None,
    stage: int,
    label: int,
    purpose: _Purpose,
    settings: ProtocolSettings,
) -> IntArray:
    """Choose `wanted` of `pool`, or the whole pool when it is no larger (or `wanted` is None)."""
    if wanted is None or wanted >= len(pool):
        return pool
    key = np.random.SeedSequence(settings.sampling_seed, spawn_key=(stage, label, purpose))
    return np.random.default_rng(key).choice(pool, size=wanted, replace=False)


def _labelled(pool: IntArray, label: int, settings: ProtocolSettings) -> IntArray:
    """Draw the labelled images of a base class."""
    # The decimal that was typed, not its binary neighbour: 0.29 * 100 is 28.999... in floats.
    wanted = math.floor(Fraction(repr(settings.labelled_fraction)) * len(pool))
    if wanted == 0:
        raise GoalError(
            f"Base class {label} would get no labelled image: labelled_fraction "
            f"{settings.labelled_fraction} of {len(pool)} rounds down to 0. "
            "Raise labelled_fraction or train_per_class, or add images."
        )
    return _take(pool, wanted, 0, label, _Purpose.LABELLED, settings)


def _pools(
    labels: IntArray,
    num_classes: int,
    settings: ProtocolSettings,
    purpose: _Purpose,
    order: IntArray,
) -> list[IntArray]:
    """Image positions by dataset class, capped, checked for every class in `order`."""
    is_train = purpose is _Purpose.TRAIN_CAP
    name, cap = (
        ("training", settings.train_per_class) if is_train else ("test", settings.test_per_class)
    )
    labels = _checked_labels(labels, num_classes, name)
    by_class = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[by_class], np.arange(1, num_classes))
    pools = np.split(by_class, bounds)
    empty = [label for label in order.tolist() if len(pools[label]) == 0]
    if empty:
        raise GoalError(
            f"No {name} images for class {', '.join(map(str, empty))}, which the protocol needs. "
            "Add images, or use fewer classes (stages, new_per_stage, base_list)."
        )
    return [np.sort(_take(p, cap, 0, label, purpose, settings)) for label, p in enumerate(pools)]


def _checked_labels(labels: IntArray, num_classes: int, name: str) -> IntArray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise GoalError(
            f"The {name} labels are {labels.dtype} of shape {labels.shape}; "
            "give one integer class id per image."
        )
    if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
        raise GoalError(
            f"The {name} labels run from {labels.min()} to {labels.max()}, but with "
            f"{num_classes} classes they must lie in 0..{num_classes - 1}."
        )
    return labels.astype(np.int64)


def _new_per_stage(num_classes: int, settings: ProtocolSettings) -> int:
    """Novel classes of each stage, after checking that the dataset has enough classes."""
    base, stages = settings.base_classes, settings.stages
    novel = num_classes - base
    if novel < 0:
        raise GoalError(
            f"base_classes is {base}, but the dataset has {num_classes} classes. Set it lower."
        )
    if stages == 0:
        return 0
    new = settings.new_per_stage
    if new is None:
        if novel == 0 or novel % stages:
            raise GoalError(
                f"{novel} novel classes ({num_classes} minus {base} base classes) do not share "
                f"out over {stages} stages. Set new_per_stage, or change stages or base_classes."
            )
        return novel // stages
    if stages * new > novel:
        raise GoalError(
            f"{stages} stages of {new} new classes need {stages * new} novel classes, but only "
            f"{novel} are left. Lower stages, new_per_stage or base_classes."
        )
    return new


def _base_classes(num_classes: int, settings: ProtocolSettings) -> IntArray:
    """Base class ids, ascending: from the list if one is set, else the first ids."""
    if settings.base_list is None:
        return np.arange(settings.base_classes, dtype=np.int64)
    ids = _read_ids(_list_file(settings.base_list))
    problem = None
    outside = sorted({i for i in ids if not 0 <= i < num_classes})
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if outside:
        problem = f"class ids {outside} are outside 0..{num_classes - 1}"
    elif twice:
        problem = f"class ids {twice} are listed more than once"
    elif len(ids) != settings.base_classes:
        problem = f"it lists {len(ids)} classes, but base_classes is {settings.base_classes}"
    if problem:
        raise GoalError(
            f"Bad base_list {settings.base_list}: {problem}. Mend the list, or change "
            "base_classes; base_list=null takes the first ids."
        )
    return np.array(sorted(ids), dtype=np.int64)


def _list_file(name: str) -> Path:
    """The shipped list of that name, else the file at that path."""
    shipped = Path(str(files("goal.protocol") / "class_lists"))
    if name in {path.stem for path in shipped.glob("*.txt")}:
        return shipped / f"{name}.txt"
    return Path(name).expanduser()


def _read_ids(path: Path) -> list[int]:
    try:
        lines = text_of(path).splitlines()
    except GoalError as error:
        raise GoalError(
            f"Cannot read base_list {path}: {error} Give a shipped list (cub-ssb), or a text file "
            "with one class id per line."
        ) from error
    ids = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            ids.append(int(text))
        except ValueError:
            raise GoalError(
                f"{path}, line {number}: '{text}' is not a class id. Write one integer per line."
            ) from None
    return ids
