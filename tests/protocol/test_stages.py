"""Stages hold the images that were asked for, and never those they must not."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goal.common.arrays import IntArray
from goal.protocol.stages import ProtocolSettings, StageIds, build_stages, class_order, targets
from tests.protocol.helpers import build, by_class, even, labels_of, of_class, same


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
