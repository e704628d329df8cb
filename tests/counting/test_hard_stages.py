"""Counting in stages that are unlike those of any benchmark: planted, with stated outcomes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goal.counting.counter import SAMPLE, most_new
from goal.counting.estimators import (
    LEAST,
    WithinClass,
    bic,
    candidates,
    estimate_new,
    measure_known,
    measured,
)

KNOWN = 5
WIDTH = 64


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def planted(counts: dict[int, int], seed: int) -> Tensor:
    """Unit features scattered around one direction per class, shuffled."""
    directions = torch.randn(100, WIDTH, generator=rng(7))
    centres = F.normalize(directions, dim=1)
    listed = torch.cat([torch.full((count,), label) for label, count in counts.items()])
    classes = listed[torch.randperm(len(listed), generator=rng(seed))]
    noise = torch.randn(len(classes), WIDTH, generator=rng(seed + 1000))
    return F.normalize(centres[classes] + 0.07 * noise, dim=1)


def known() -> tuple[Tensor, WithinClass]:
    labels = torch.arange(KNOWN).repeat_interleave(60)
    features = torch.cat([planted({label: 60}, 50 + label) for label in range(KNOWN)])
    return measure_known(features, labels, KNOWN)


def count(counts: dict[int, int], most: int = 12, seed: int = 1) -> int:
    return estimate_new(planted(counts, seed), *known(), most, rng())


def test_nothing_new_is_seen_as_such_in_all_but_one_of_forty_draws() -> None:
    classes = known()
    wrong = 0
    for draw in range(40):
        features = planted(dict.fromkeys(range(KNOWN), 12), 100 + draw)
        wrong += estimate_new(features, *classes, 6, rng(draw)) != 0
    assert wrong <= 1


@pytest.mark.parametrize(
    ("counts", "new"),
    [
        pytest.param({5: 1500, 6: 30, 7: 30}, 3, id="one huge class"),
        pytest.param({5: 13, 6: 40, 7: 130}, 3, id="sizes spread one to ten"),
    ],
)
def test_uneven_classes_are_counted(counts: dict[int, int], new: int) -> None:
    assert count(dict.fromkeys(range(KNOWN), 10) | counts) == new


def test_one_percent_new_is_one_class() -> None:
    assert count(dict.fromkeys(range(KNOWN), 300) | {5: 15}) == 1


def test_95_percent_new_is_all_counted() -> None:
    assert count(dict.fromkeys(range(KNOWN), 4) | dict.fromkeys(range(5, 9), 95)) == 4


def test_known_classes_that_drift_are_not_new() -> None:
    """By 1.6 deviations of images from where labels showed them, then by 3.3; 4.9 are too many."""
    classes = known()
    for stage in (1, 2):
        ways = F.normalize(torch.randn(KNOWN, WIDTH, generator=rng(8)), dim=1)
        moved = planted(dict.fromkeys(range(KNOWN), 30), stage)
        nearest = torch.cdist(moved, classes[0]).argmin(dim=1)
        features = F.normalize(moved + 0.1 * stage * ways[nearest], dim=1)
        assert estimate_new(features, *classes, 6, rng(stage)) == 0


@pytest.mark.parametrize("label", [0, 50])
def test_copies_of_one_image_are_at_most_one_class(label: int) -> None:
    copies = planted({label: 1}, 4).expand(60, -1)
    assert estimate_new(copies, *known(), 6, rng()) == (label >= KNOWN)


def test_many_more_new_classes_than_known_ones_are_counted_within_a_fifth() -> None:
    stage = dict.fromkeys(range(KNOWN), 6) | dict.fromkeys(range(KNOWN, 65), 20)
    features = planted(stage, 2)
    most = most_new(len(features), None)
    found = candidates(features, *known(), most, rng(), patience=10)
    assert 48 <= bic(found) <= 60 and 48 <= measured(found).count <= 60


def test_growth_ends_when_nothing_is_gained() -> None:
    features = planted(dict.fromkeys(range(KNOWN), 40), 2)
    found = candidates(features, *known(), 100, rng(), patience=4)
    assert [part.num_new for part in found.partitions] == [0, 1, 2, 3, 4]


def test_as_many_classes_as_there_are_images_and_room_for() -> None:
    assert most_new(10, None) == 1
    assert most_new(2400, None) == 2400 // (2 * LEAST)
    assert most_new(10**6, None) == SAMPLE // (2 * LEAST)
    assert most_new(10**6, 7) == 7
