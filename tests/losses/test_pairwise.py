"""Pairwise discovery terms against loops, hand values and finite differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.losses.pairwise import alike_by_cosine, consistency, pairwise_bce, ramp_up


def predictions(batch: int, classes: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch, classes, generator=rng, dtype=torch.float64).softmax(dim=1)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 7), st.integers(1, 6), st.floats(-0.9, 0.9), st.integers(0, 99))
def test_alike_by_cosine_is_the_loop(batch: int, width: int, threshold: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, width, generator=rng, dtype=torch.float64)
    expected = []
    for one in features.tolist():
        row = []
        for other in features.tolist():
            dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
            row.append(float(dot / math.hypot(*one) / math.hypot(*other) >= threshold))
        expected.append(row)
    assert alike_by_cosine(features, threshold).tolist() == expected
    assert alike_by_cosine(3 * features, threshold).tolist() == expected  # lengths do not matter


def test_an_image_is_like_itself_whatever_rounding_does() -> None:
    features = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(alike_by_cosine(features, 1.0), torch.eye(50))
    assert not alike_by_cosine(features.requires_grad_(), 0.5).requires_grad


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(0, 99))
def test_pairwise_bce_is_the_double_loop(batch: int, classes: int, seed: int) -> None:
    first, second = predictions(batch, classes, seed), predictions(batch, classes, seed + 100)
    rng = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (batch, batch), generator=rng).double()
    total = 0.0
    for i in range(batch):
        for j in range(batch):
            agree = sum(float(first[i, c]) * float(second[j, c]) for c in range(classes))
            total -= math.log(agree) if targets[i, j] else math.log(1 - agree)
    value = pairwise_bce(first, second, targets).item()
    assert value == pytest.approx(total / batch**2, abs=1e-9)
    order = torch.randperm(batch, generator=rng)
    shuffled = pairwise_bce(first[order], second[order], targets[order][:, order])
    assert shuffled.item() == pytest.approx(value, abs=1e-12)
    swapped = pairwise_bce(second, first, targets.T)
    assert swapped.item() == pytest.approx(value, abs=1e-12)


def test_pairwise_bce_is_lowest_when_predictions_follow_the_pairs() -> None:
    targets = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    right = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert pairwise_bce(right, right, targets).item() == pytest.approx(0, abs=1e-5)
    even = torch.full((3, 2), 0.5)
    assert pairwise_bce(even, even, targets).item() == pytest.approx(math.log(2), abs=1e-6)


def test_certain_predictions_give_finite_values_and_gradients() -> None:
    scores = torch.tensor([[80.0, -80.0], [80.0, -80.0]], requires_grad=True)
    sure = scores.softmax(dim=1)
    for targets in (torch.ones(2, 2), torch.zeros(2, 2)):
        value = pairwise_bce(sure, sure, targets)
        assert bool(value.isfinite())
        assert bool(torch.autograd.grad(value, scores, retain_graph=True)[0].isfinite().all())
    alone = torch.ones(2, 1)  # one class: nothing to decide
    assert bool(pairwise_bce(alone, alone, torch.eye(2)).isfinite())


def test_both_views_get_the_gradient_that_finite_differences_give() -> None:
    inputs = (predictions(3, 4, 1).requires_grad_(), predictions(3, 4, 2).requires_grad_())
    targets = torch.eye(3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p, q: pairwise_bce(p, q, targets), inputs)
    assert torch.autograd.gradcheck(consistency, inputs)
    for loss in (pairwise_bce(*inputs, targets), consistency(*inputs)):
        for gradient in torch.autograd.grad(loss, inputs):
            assert gradient.abs().sum() > 0


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_consistency_is_the_mean_over_all_entries(batch: int, classes: int, seed: int) -> None:
    first, second = predictions(batch, classes, seed), predictions(batch, classes, seed + 100)
    total = 0.0
    for p, q in zip(first.tolist(), second.tolist(), strict=True):
        total += sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
    assert consistency(first, second).item() == pytest.approx(total / batch / classes, abs=1e-12)
    assert consistency(first, first).item() == 0


def test_the_ramp_rises_to_one_and_stays() -> None:
    values = [ramp_up(epoch, 4) for epoch in range(7)]
    assert values[0] == pytest.approx(math.exp(-5))
    assert values[2] == pytest.approx(math.exp(-5 / 4))
    assert values == sorted(values)
    assert values[4:] == [1, 1, 1]
    assert ramp_up(0, 0) == 1
