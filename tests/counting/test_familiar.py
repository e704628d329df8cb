"""The test before counting: known images alone pass it, new classes do not, near or few."""

import torch
from torch import Tensor

from goal.counting.familiar import CHANCE, Edge, chance_of_known, measure_edge

WIDTH = 40
CENTRES = 3 * torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(0))


def drawn(classes: Tensor, seed: int) -> Tensor:
    noise = torch.randn(len(classes), WIDTH, generator=torch.Generator().manual_seed(seed))
    return (CENTRES[classes] + noise).double()


LABELS = torch.arange(10).repeat_interleave(40)
LABELLED = drawn(LABELS, 1)
MEANS = torch.stack([LABELLED[label == LABELS].mean(dim=0) for label in range(10)])
AWAY = LABELLED - MEANS[LABELS]
WITHIN = AWAY.T @ AWAY / len(AWAY)
EDGE = measure_edge(LABELLED, LABELS, 10)


def chance(images: Tensor) -> float:
    return chance_of_known(images, MEANS, WITHIN, EDGE)


def test_known_images_alone_are_rarely_taken_for_new() -> None:
    draws = [chance(drawn(torch.arange(10).repeat(6), 100 + draw)) for draw in range(40)]
    assert sum(value <= CHANCE for value in draws) <= 1


def test_many_new_images_are_seen_though_none_is_farther_than_known_ones_reach() -> None:
    # Images of a class beside a known one: farther than most, nearer than the farthest.
    step = 0.45 * torch.ones(WIDTH, dtype=torch.float64)
    beside = drawn(torch.zeros(400, dtype=torch.int64), 3) + step
    away = torch.cdist(beside, MEANS).amin(dim=1)
    known = torch.cdist(LABELLED, MEANS).amin(dim=1)
    beside = beside[away < known.max()]
    assert len(beside) > 200
    assert chance(beside) <= CHANCE


def test_a_few_far_images_are_seen() -> None:
    known = drawn(torch.arange(10).repeat(30), 5)
    assert chance(torch.cat([known, drawn(torch.full((15,), 11), 6)])) <= CHANCE


def test_a_state_from_before_edges_were_measured_speaks_against_nothing() -> None:
    nothing = torch.tensor(0)
    assert chance_of_known(LABELLED, MEANS, WITHIN, Edge(nothing, nothing, nothing)) == 0.0
    assert chance_of_known(LABELLED, MEANS, WITHIN, measure_edge(LABELLED[:2], LABELS[:2], 1)) == 0
