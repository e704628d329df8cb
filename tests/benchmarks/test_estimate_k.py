"""The benchmark of estimators: no image is both in a stage and among those measured."""

import pytest
import torch

from benchmarks.estimate_k import Pool
from goal.common.errors import GoalError


def pool() -> Pool:
    """Three known classes of 6, 5 and 4 images, and two novel ones, each image its own number."""
    made = Pool.__new__(Pool)
    made.num_known = 3
    made.labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 0])
    made.labelled = torch.arange(15.0)[:, None]
    made.known = torch.tensor([[100.0], [101.0]])
    made.novel = [torch.tensor([[200.0], [201.0], [202.0]]), torch.tensor([[300.0], [301.0]])]
    return made


def test_held_back_images_are_in_stages_and_not_measured() -> None:
    held = pool()
    held.hold_back(2)
    assert held.known.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert held.labelled.flatten().tolist() == [6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert held.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 0]


@pytest.mark.parametrize("count", [-1, 3])
def test_more_than_half_of_a_class_is_not_held_back(count: int) -> None:
    with pytest.raises(GoalError, match="at most half"):
        pool().hold_back(count)


def test_a_draw_has_the_known_images_and_some_of_each_new_class() -> None:
    rng = torch.Generator().manual_seed(0)
    everything = sorted(pool().draw(2, rng, None).flatten().tolist())
    assert everything == [100, 101, 200, 201, 202, 300, 301]
    assert sorted(pool().draw(2, rng, 1).flatten().tolist()) == [100, 101, 200, 300]
    assert sorted(pool().draw(0, rng, 1).flatten().tolist()) == [100, 101]
