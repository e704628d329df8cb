"""Stages against the published protocol: sizes, order, and what may never happen."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.protocol.stages import ProtocolSettings, StageIds, build_stages, class_order, targets


def labels_of(counts: list[int]) -> IntArray:
    """`counts[c]` labels of class c, in a scrambled order as in a real dataset."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.random.default_rng(1).permutation(labels)


def even(classes: int, each: int) -> IntArray:
    return labels_of([each] * classes)


def by_class(ids: IntArray, labels: IntArray) -> list[int]:
    return [int(n) for n in np.bincount(labels[ids], minlength=int(labels.max()) + 1)]


def of_class(ids: IntArray, labels: IntArray, label: int) -> set[int]:
    return set(ids[labels[ids] == label].tolist())


def build(train: IntArray, test: IntArray, **values: Any) -> tuple[StageIds, ...]:
    return build_stages(train, test, int(test.max()) + 1, ProtocolSettings(**values))


def same(left: StageIds, right: StageIds) -> bool:
    names = [field.name for field in fields(StageIds)]
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)


def cub_test_counts() -> list[int]:
    """Made-up counts per class that add up to the published sizes of CUB's test sets.

    Those belong to the SSB split's base classes, whose list is not at hand. So each block of
    classes gets the block's share, spread evenly, its first classes taking the remainder.
    """
    novel = np.arange(100, 200)
    np.random.RandomState(0).shuffle(novel)
    blocks = [np.arange(100), *np.split(novel, 5)]
    counts = np.zeros(200, dtype=np.int64)
    for block, total in zip(blocks, (2864, 566, 598, 586, 592, 588), strict=True):
        counts[block] = total // len(block)
        counts[block[: total % len(block)]] += 1
    return counts.tolist()


# Base classes, images per new class, images per base or discovered class, train and test labels.
# ImageNet-100 has about 1274 a class, of which 80% are 1019.2. CUB has 5994 training images:
# 30 a class, but for six classes of 29.
CUB_TRAIN = labels_of([29] * 2 + [30] * 98 + [29] * 4 + [30] * 96)
DATA = {
    "cifar100": (50, 400, 25, even(100, 500), even(100, 100)),
    "tinyimagenet": (100, 400, 25, even(200, 500), even(200, 50)),
    "imagenet100": (50, 1000, 60, even(100, 1274), even(100, 50)),
    "cub": (100, 25, 5, CUB_TRAIN, labels_of(cub_test_counts())),
}
# Labelled images, unlabelled images of stage 1 (new classes + base classes), how many more each
# further stage has (one more set of discovered classes), and the test images of every stage.
CUB_LABELLED = 98 * 24 + 2 * 23  # floor(0.8 * 30) and floor(0.8 * 29)
CUB_5 = (2864, 3430, 4028, 4614, 5206, 5794)
# Every other stage adds the first half of a block as cub_test_counts spreads it: 566 is
# 20 * 28 + 6, so 286; then 300, 296, 300 and 298.
CUB_10 = (2864, 3150, 3430, 3730, 4028, 4324, 4614, 4914, 5206, 5504, 5794)
SIZES = [
    ("cifar100", 5, 50 * 400, 10 * 400 + 50 * 25, 10 * 25, range(5000, 10_001, 1000)),
    ("cifar100", 10, 50 * 400, 5 * 400 + 50 * 25, 5 * 25, range(5000, 10_001, 500)),
    ("tinyimagenet", 5, 100 * 400, 20 * 400 + 100 * 25, 20 * 25, range(5000, 10_001, 1000)),
    ("tinyimagenet", 10, 100 * 400, 10 * 400 + 100 * 25, 10 * 25, range(5000, 10_001, 500)),
    ("imagenet100", 5, 50 * 1019, 10 * 1000 + 50 * 60, 10 * 60, range(2500, 5001, 500)),
    ("imagenet100", 10, 50 * 1019, 5 * 1000 + 50 * 60, 5 * 60, range(2500, 5001, 250)),
    ("cub", 5, CUB_LABELLED, 20 * 25 + 100 * 5, 20 * 5, CUB_5),
    ("cub", 10, CUB_LABELLED, 10 * 25 + 100 * 5, 10 * 5, CUB_10),
]


def published(name: str, stages: int) -> tuple[StageIds, ...]:
    base, new, few, train, test = DATA[name]
    quotas = {"unlabelled_new": new, "unlabelled_base": few, "unlabelled_discovered": few}
    return build(train, test, base_classes=base, stages=stages, **quotas)


@pytest.mark.parametrize(("name", "stages", "labelled", "first", "more", "tested"), SIZES)
def test_benchmark_sizes(
    name: str, stages: int, labelled: int, first: int, more: int, tested: Sequence[int]
) -> None:
    built = published(name, stages)
    unlabelled = [first + more * i for i in range(stages)]
    assert [len(stage.train_ids) for stage in built] == [labelled, *unlabelled]
    assert [len(stage.test_ids) for stage in built] == list(tested)
    assert [stage.index for stage in built] == list(range(stages + 1))
    base, new = DATA[name][0], DATA[name][0] // stages
    assert [stage.num_new for stage in built] == [base] + [new] * stages
    assert [stage.num_known for stage in built] == [0, *range(base, 2 * base, new)]
    assert built[-1].num_seen == 2 * base


def test_composition_of_a_stage() -> None:
    """CIFAR-100, stage 2: 25 of each base and discovered class, 400 of each new one, no others."""
    train = DATA["cifar100"][3]
    counts = np.array(by_class(published("cifar100", 5)[2].train_ids, train))
    order = class_order(100, ProtocolSettings(base_classes=50, stages=5))
    assert counts[order].tolist() == [25] * 60 + [400] * 10 + [0] * 30
    assert same(published("cifar100", 5)[0], published("cifar100", 10)[0])  # whatever T is


def test_all_images_of_a_class_smaller_than_asked() -> None:
    """ImageNet's smallest class has 732 training images: a stage that wants 1000 gets them all."""
    train = labels_of([100, 732, 1300])
    protocol = ProtocolSettings(base_classes=1, stages=2, unlabelled_new=1000, unlabelled_base=60)
    order = class_order(3, protocol).tolist()
    stages = build_stages(train, even(3, 5), 3, protocol)
    small, large = stages[order.index(1)], stages[order.index(2)]
    assert of_class(small.train_ids, train, 1) == set(np.flatnonzero(train == 1).tolist())
    assert len(of_class(large.train_ids, train, 2)) == 1000
    # Stage 0 leaves 20 of the 100 base images, fewer than the 60 asked for.
    assert by_class(stages[1].train_ids, train)[0] == 20


@pytest.mark.parametrize(
    ("fraction", "images", "labelled"),
    # 0.29 * 100 = 28.999999999999996 and 0.57 * 100 = 56.99999999999999 in floating point.
    [(0.8, 500, 400), (0.29, 100, 29), (0.57, 100, 57), (0.8, 29, 23), (1.0, 7, 7)],
)
def test_labelled_fraction_is_exact(fraction: float, images: int, labelled: int) -> None:
    train = even(2, images)
    (stage,) = build(train, even(2, 1), base_classes=2, stages=0, labelled_fraction=fraction)
    assert by_class(stage.train_ids, train) == [labelled, labelled]


def test_class_order_of_cifar100() -> None:
    order = class_order(100, ProtocolSettings(base_classes=50, stages=5))
    assert order[:50].tolist() == list(range(50))
    assert order[50:62].tolist() == [78, 61, 60, 91, 52, 77, 88, 81, 72, 54, 83, 85]
    assert sorted(order.tolist()) == list(range(100))
    assert order.dtype == np.int64
    other = class_order(100, ProtocolSettings(base_classes=50, stages=5, class_order_seed=1))
    assert np.array_equal(order[:50], other[:50]) and not np.array_equal(order, other)


def test_class_order_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    class_order(100, ProtocolSettings(base_classes=50, stages=5))
    build(even(10, 20), even(10, 2), train_per_class=10)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(before, dict) and isinstance(after, dict)
    assert before["state"]["pos"] == after["state"]["pos"]
    assert np.array_equal(before["state"]["key"], after["state"]["key"])


def test_classes_left_over_have_no_target() -> None:
    protocol = ProtocolSettings(base_classes=50, stages=2, new_per_stage=5)
    order = class_order(100, protocol)
    assert order[50:].tolist() == [78, 61, 60, 91, 52, 77, 88, 81, 72, 54]
    labels = np.array([78, 3, 54, 83, 61])  # 83 is the eleventh novel class: no stage has it
    assert targets(labels, order).tolist() == [50, 3, 59, -1, 51]
    last = build_stages(even(100, 10), even(100, 2), 100, protocol)[-1]
    assert (targets(even(100, 2)[last.test_ids], order) >= 0).all()
    assert last.num_seen == 60 and len(last.test_ids) == 120
    with pytest.raises(GoalError, match="start at 0"):
        targets(np.array([0, -1]), order)


Case = tuple[IntArray, IntArray, dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn, repeats: tuple[bool, ...] = (False, True)) -> Case:
    """Labels of a small dataset, and settings that fit it."""
    base, stages, new = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    classes = base + stages * new + draw(st.integers(0, 2))
    train, test = (
        labels_of(draw(st.lists(st.integers(low, high), min_size=classes, max_size=classes)))
        for low, high in ((2, 15), (1, 4))
    )
    values = {
        "labelled_fraction": draw(st.sampled_from([0.5, 0.8, 1.0])),
        "unlabelled_new": draw(st.none() | st.integers(1, 12)),
        "unlabelled_base": draw(st.integers(0, 6)),
        "unlabelled_discovered": draw(st.integers(0, 6)),
        "class_order_seed": draw(st.integers(0, 5)),
        "sampling_seed": draw(st.integers(0, 2**40)),
        "no_repeats": draw(st.sampled_from(repeats)),
    }
    return train, test, {"base_classes": base, "stages": stages, "new_per_stage": new} | values


@settings(deadline=None)
@given(cases())
def test_stages_keep_their_promises(case: Case) -> None:
    train, test, values = case
    order = class_order(int(test.max()) + 1, ProtocolSettings(**values))
    of_train, of_test = targets(train, order), targets(test, order)
    stages = build(train, test, **values)
    labelled = stages[0].train_ids.tolist()
    assert set(of_train[labelled].tolist()) == set(range(values["base_classes"]))
    for stage in stages:
        assert (np.diff(stage.train_ids) > 0).all()  # ascending, and nothing twice in a stage
        mixture = of_train[stage.train_ids]
        assert ((mixture >= 0) & (mixture < stage.num_seen)).all()
        seen = np.flatnonzero((of_test >= 0) & (of_test < stage.num_seen))
        assert np.array_equal(stage.test_ids, seen)
        assert stage.index == 0 or set(labelled).isdisjoint(stage.train_ids.tolist())


@settings(deadline=None)
@given(cases(repeats=(False,)))
def test_stages_take_what_was_asked(case: Case) -> None:
    """Count by hand: the quota of the class's role, or everything a smaller class has."""
    train, test, values = case
    order = class_order(int(test.max()) + 1, ProtocolSettings(**values)).tolist()
    stages = build(train, test, **values)
    for stage in stages[1:]:
        counts = by_class(stage.train_ids, train)
        for position, label in enumerate(order[: stage.num_seen]):
            available = int((train == label).sum())
            quota = values["unlabelled_discovered"]
            if position < values["base_classes"]:
                available -= by_class(stages[0].train_ids, train)[label]
                quota = values["unlabelled_base"]
            elif position >= stage.num_known:
                quota = values["unlabelled_new"]
            assert counts[label] == (available if quota is None else min(quota, available))


@settings(deadline=None)
@given(cases(repeats=(True,)))
def test_no_repeats_gives_each_image_once(case: Case) -> None:
    train, test, values = case
    given_ids = np.concatenate([stage.train_ids for stage in build(train, test, **values)])
    assert len(np.unique(given_ids)) == len(given_ids)


@settings(deadline=None)
@given(cases(), st.integers(0, 3))
def test_stages_do_not_depend_on_how_many_follow(case: Case, stages: int) -> None:
    train, test, values = case
    short = build(train, test, **values | {"stages": min(stages, values["stages"])})
    whole = build(train, test, **values)
    assert all(same(a, b) for a, b in zip(short, whole[: len(short)], strict=True))


def test_other_quotas_do_not_move_a_draw() -> None:
    train, test = even(10, 60), even(10, 2)
    low, high = (build(train, test, unlabelled_new=20, unlabelled_base=n)[1] for n in (3, 9))
    new = int(class_order(10, ProtocolSettings())[4])
    assert of_class(low.train_ids, train, new) == of_class(high.train_ids, train, new)
    assert len(high.train_ids) - len(low.train_ids) == 4 * 6


def test_published_stream_repeats_images_and_strict_one_does_not() -> None:
    """Base class: 500 images, 400 labelled, 40 of the other 100 asked for at each of 4 stages."""
    train, test = even(5, 500), even(5, 2)
    common = {"base_classes": 1, "stages": 4, "unlabelled_base": 40, "unlabelled_new": 100}
    stages = {once: build(train, test, **common, no_repeats=once) for once in (False, True)}
    loose = [of_class(stage.train_ids, train, 0) for stage in stages[False][1:]]
    assert [len(ids) for ids in loose] == [40, 40, 40, 40]
    assert loose[0] != loose[1] and loose[0] & loose[1]  # drawn anew, so partly the same
    strict = [of_class(stage.train_ids, train, 0) for stage in stages[True][1:]]
    assert [len(ids) for ids in strict] == [40, 40, 20, 0]
    assert len(set().union(*strict)) == 100
    assert same(stages[False][1], stages[True][1])


def test_sampling_seed_changes_images_but_not_sizes() -> None:
    train, test = np.repeat(np.arange(10), 60), even(10, 3)
    one, again, two = (
        build(train, test, unlabelled_new=20, sampling_seed=seed) for seed in (3, 3, 4)
    )
    assert all(same(a, b) for a, b in zip(one, again, strict=True))
    for a, b in zip(one, two, strict=True):
        assert by_class(a.train_ids, train) == by_class(b.train_ids, train)
        assert not np.array_equal(a.train_ids, b.train_ids)
        assert np.array_equal(a.test_ids, b.test_ids)
    # Classes of one size, 60 images in a row each, do not get the same choice either.
    assert len({tuple(ids % 60) for ids in np.split(one[0].train_ids, 4)}) == 4


def test_caps_come_before_every_other_draw() -> None:
    train, test = even(10, 60), even(10, 9)
    stages = build(train, test, train_per_class=20, test_per_class=4)
    assert by_class(stages[0].train_ids, train) == [16] * 4 + [0] * 6  # 80% of 20, not of 60
    used = np.unique(np.concatenate([stage.train_ids for stage in stages]))
    assert max(by_class(used, train)) == 20
    assert by_class(stages[-1].test_ids, test) == [4] * 10
    assert set(stages[0].test_ids.tolist()) < set(stages[-1].test_ids.tolist())
    first = np.concatenate([np.flatnonzero(test == label)[:4] for label in range(10)])
    assert set(stages[-1].test_ids.tolist()) != set(first.tolist())  # at random, not the first
    twin = build(train, train, train_per_class=20, test_per_class=20, labelled_fraction=1.0)[0]
    assert not np.array_equal(twin.train_ids, twin.test_ids)  # each set has its own draw


def test_stage_has_no_room_for_labels() -> None:
    names = {field.name for field in fields(StageIds)}
    assert names == {"index", "train_ids", "test_ids", "num_known", "num_new"}


def test_base_list_sets_the_base_classes(tmp_path: Path) -> None:
    path = tmp_path / "base.txt"
    path.write_text("# the known classes\n7\n\n 2  # a comment\n5\n9\n", encoding="utf-8")
    order = class_order(10, ProtocolSettings(base_list=str(path))).tolist()
    assert order[:4] == [2, 5, 7, 9] and sorted(order[4:]) == [0, 1, 3, 4, 6, 8]
    first = build(even(10, 10), even(10, 1), base_list=str(path))[0]
    assert set(even(10, 10)[first.train_ids].tolist()) == {2, 5, 7, 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ntwo\n3\n4\n", "line 2: 'two' is not a class id"),
        ("1\n2\n2\n4\n", r"\[2\] are listed more than once"),
        ("1\n2\n3\n10\n", r"\[10\] are outside 0..9"),
        ("-1\n2\n3\n4\n", r"\[-1\] are outside 0..9"),
        ("1\n2\n3\n", "lists 3 classes, but base_classes is 4"),
        ("", "lists 0 classes"),
    ],
)
def test_bad_base_list(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "base.txt").write_text(text, encoding="utf-8")
    with pytest.raises(GoalError, match=message):
        class_order(10, ProtocolSettings(base_list=str(tmp_path / "base.txt")))


@pytest.mark.parametrize("name", ["nowhere.txt", ".", "binary"])
def test_unreadable_base_list(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoalError, match=f"Cannot read base_list {tmp_path / name}"):
        class_order(10, ProtocolSettings(base_list=str(tmp_path / name)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_classes": 11}, "base_classes is 11, but the dataset has 10"),
        ({"stages": 4}, "6 novel classes .* over 4 stages. Set new_per_stage"),
        ({"base_classes": 10}, "0 novel classes"),
        ({"new_per_stage": 3}, "need 9 novel classes, but only 6"),
    ],
)
def test_settings_that_do_not_fit_the_dataset(values: dict[str, int], message: str) -> None:
    with pytest.raises(GoalError, match=message):
        build(even(10, 10), even(10, 2), **values)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (labels_of([5] * 9 + [0]), even(10, 2), "No training images for class 9"),
        (even(10, 5), labels_of([2, 0] + [2] * 8), "No test images for class 1"),
        (even(11, 5), even(10, 2), "training labels run from 0 to 10"),
        (even(10, 5), even(10, 2) - 1, "test labels run from -1 to 8"),
        (even(10, 5).astype(np.float64), even(10, 2), "float64"),
        (even(10, 5).reshape(2, 25), even(10, 2), r"shape \(2, 25\)"),
        (even(10, 1), even(10, 2), "Base class 0 would get no labelled image"),
    ],
)
def test_labels_that_do_not_fit(train: IntArray, test: IntArray, message: str) -> None:
    with pytest.raises(GoalError, match=message):
        build_stages(train, test, 10, ProtocolSettings())


def test_a_class_no_stage_uses_may_be_empty() -> None:
    protocol = ProtocolSettings(stages=2, new_per_stage=2)
    unused = set(range(10)) - set(class_order(10, protocol).tolist())
    train = labels_of([0 if label in unused else 5 for label in range(10)])
    assert len(build_stages(train, even(10, 2), 10, protocol)) == 3


ZERO = ("base_classes", "new_per_stage", "unlabelled_new", "train_per_class", "test_per_class")
BELOW = ("stages", "unlabelled_base", "unlabelled_discovered", "sampling_seed", "class_order_seed")
OTHER = (("labelled_fraction", 0.0), ("labelled_fraction", 1.5), ("class_order_seed", 2**32))
BAD = (*((key, 0) for key in ZERO), *((key, -1) for key in BELOW), *OTHER, ("stage", 5))


@pytest.mark.parametrize(("key", "value"), BAD)
def test_settings_out_of_range(key: str, value: float) -> None:
    with pytest.raises(GoalError, match=f"- {key}: "):
        ProtocolSettings.parse({key: value})


def test_defaults_fit_the_digits() -> None:
    """Ten classes of 143: floor(114.4) labelled, 29 left over; then 2 new classes a stage."""
    stages = build(even(10, 143), even(10, 36))
    new = 2 * 143
    sizes = [4 * 114, 4 * 10 + new, 4 * 10 + 2 * 10 + new, 4 * 10 + 4 * 10 + new]
    assert [len(stage.train_ids) for stage in stages] == sizes
