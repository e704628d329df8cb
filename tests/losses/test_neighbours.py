"""Contrast with neighbours against a loop, against SupCon where both agree, and at its edges."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.losses.contrastive import info_nce, sup_con
from goal.losses.neighbours import neighbour_weights, soft_sup_con


def unit(rows: int, width: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=rng, dtype=torch.float64), dim=1)


def weights_by_loop(first: Tensor, second: Tensor, threshold: float) -> list[dict[int, float]]:
    """For each image, its neighbours and their weights."""
    result = []
    for i in range(len(first)):
        similar = {
            j: max(float(a @ b) for a in (first[i], second[i]) for b in (first[j], second[j]))
            for j in range(len(first))
        }
        near = {j: s for j, s in similar.items() if s >= threshold or j == i}
        whole = math.fsum(math.exp(s) for s in near.values())
        result.append({j: math.exp(s) / whole for j, s in near.items()})
    return result


def loop(first: Tensor, second: Tensor, threshold: float, temperature: float) -> Tensor:
    """The docstring's sum, term by term; weights are plain numbers, so without gradient."""
    views = [*first, *second]
    batch = len(first)
    neighbours = weights_by_loop(first.detach(), second.detach(), threshold)
    total, count = torch.zeros((), dtype=first.dtype), 0
    for v, view in enumerate(views):
        near = neighbours[v % batch]
        if len(near) == 1:
            continue
        count += 1
        scores = [view @ other / temperature for other in views]
        whole = torch.stack([s for u, s in enumerate(scores) if u != v]).logsumexp(dim=0)
        for j, weight in near.items():
            mine = [u for u in (j, j + batch) if u != v]
            total = total - weight * sum(scores[u] - whole for u in mine) / len(mine)
    return total / max(count, 1)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from([-1.0, 0.0, 0.5, 0.85]),
    st.sampled_from([0.07, 1.0]),
    st.integers(0, 99),
)
def test_value_and_gradient_are_the_loops(
    batch: int, width: int, threshold: float, temperature: float, seed: int
) -> None:
    first = unit(batch, width, seed).requires_grad_()
    second = unit(batch, width, seed + 100).requires_grad_()
    value = soft_sup_con(first, second, threshold, temperature)
    expected = loop(first, second, threshold, temperature)
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    found = torch.autograd.grad(value, (first, second))
    if expected.requires_grad:
        for ours, theirs in zip(found, torch.autograd.grad(expected, (first, second)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    else:  # nobody has a neighbour
        assert all(not bool(gradient.any()) for gradient in found)


def test_weights_are_a_softmax_of_similarity_over_the_neighbourhood() -> None:
    first, second = unit(5, 4, 3), unit(5, 4, 4)
    views = torch.cat([first, second])
    weights = neighbour_weights(views @ views.T, 0.5)
    expected = weights_by_loop(first, second, 0.5)
    assert len({len(row) for row in expected}) > 1  # else the threshold would not show
    for i, row in enumerate(expected):
        for j in range(5):
            assert weights[i, j].item() == pytest.approx(row.get(j, 0.0), abs=1e-12)


def test_with_perfect_neighbourhoods_it_is_sup_con_with_the_labels_it_was_not_given() -> None:
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 2])
    views = torch.eye(3, dtype=torch.float64)[labels]
    for temperature in (0.07, 1.0):
        ours = soft_sup_con(views, views, 0.85, temperature)
        theirs = sup_con(views, views, labels, temperature)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)


def test_two_images_that_are_neighbours_by_one_pair_of_views_only() -> None:
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[0.0, -1.0], [1.0, 0.0]])  # of image 1: equals the first of image 0
    # s_01 = 1 = s_00, so each image weighs 1/2; its own other view gets it whole.
    shares = (torch.cat([first, second]) @ torch.cat([first, second]).T).fill_diagonal_(-1e9)
    logs = shares.log_softmax(dim=1)
    w = [[0, 0.25, 0.5, 0.25], [0.25, 0, 0.25, 0.5], [0.5, 0.25, 0, 0.25], [0.25, 0.5, 0.25, 0]]
    expected = -(torch.tensor(w) * logs).sum() / 4
    assert soft_sup_con(first, second, 0.85, 1.0).item() == pytest.approx(expected.item())


def test_without_any_neighbour_it_is_zero_and_so_is_its_gradient() -> None:
    views = torch.eye(4, requires_grad=True)
    value = soft_sup_con(views, views, 0.85, 0.07)
    assert value.item() == 0
    assert not bool(torch.autograd.grad(value, views)[0].any())
    assert info_nce(views, views, 0.07).item() > 0  # unlike the contrast between views


@pytest.mark.parametrize("temperature", [0.07, 1e-3])
def test_a_threshold_of_one_survives_rounding_and_cold_temperatures_stay_finite(
    temperature: float,
) -> None:
    views = F.normalize(torch.full((3, 7), 0.1), dim=1).requires_grad_()
    value = soft_sup_con(views, views, 0.999, temperature)
    assert value.item() == pytest.approx(math.log(5), abs=1e-4)
    assert bool(torch.autograd.grad(value, views)[0].isfinite().all())
