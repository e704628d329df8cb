"""LwF's term against a loop over the divergence, its gradient by hand, and its zero."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from torch import Tensor

from goal.losses.distillation import batch_distillation, logit_distillation


def logits(batch: int, classes: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return 10 * torch.randn(batch, classes, generator=rng, dtype=torch.float64)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 99))
def test_it_is_the_loop(batch: int, classes: int, temperature: float, seed: int) -> None:
    own, previous = logits(batch, classes, seed), logits(batch, classes, seed + 100)
    total = 0.0
    for i in range(batch):
        target = softmax(previous[i].numpy() / temperature)
        student = softmax(own[i].numpy() / temperature)
        total += math.fsum(rel_entr(target[k], student[k]) for k in range(classes))
    value = logit_distillation(own, previous, temperature).item()
    assert value == pytest.approx(temperature**2 * total / batch, rel=1e-9, abs=1e-12)


def test_zero_when_nothing_has_moved_or_all_logits_have_moved_alike() -> None:
    own = logits(4, 5, 0).requires_grad_()
    for previous in (own.detach(), own.detach() + torch.arange(4.0)[:, None]):
        value = logit_distillation(own, previous, 2.0)
        assert value.item() == pytest.approx(0, abs=1e-12)
        (gradient,) = torch.autograd.grad(value, own)
        torch.testing.assert_close(gradient, torch.zeros_like(own), rtol=0, atol=1e-12)


def test_gradient_goes_to_the_current_logits_only_and_is_that_of_the_cross_entropy() -> None:
    own, previous = logits(3, 4, 1).requires_grad_(), logits(3, 4, 2).requires_grad_()
    logit_distillation(own, previous, 2.0).backward()
    # tau^2 * (softmax(own / tau) - softmax(previous / tau)) / tau, over three images.
    expected = 2 * (softmax(own.detach() / 2, axis=1) - softmax(previous.detach() / 2, axis=1)) / 3
    assert previous.grad is None and own.grad is not None
    torch.testing.assert_close(own.grad, torch.as_tensor(expected))


def test_certain_predictions_stay_finite() -> None:
    own = torch.tensor([[1e4, -1e4]], requires_grad=True)
    value = logit_distillation(own, -own.detach(), 2.0)
    assert value.item() == pytest.approx(4 * 1e4, rel=1e-6)
    assert bool(torch.autograd.grad(value, own)[0].isfinite().all())


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(2, 6), st.integers(0, 99))
def test_batch_distillation_is_the_distance_of_two_long_vectors(
    batch: int, width: int, seed: int
) -> None:
    own, previous = logits(batch, width, seed), logits(batch, width, seed + 100)
    ones, others = own.flatten().tolist(), previous.flatten().tolist()
    lengths = math.hypot(*ones), math.hypot(*others)
    apart = [a / lengths[0] - b / lengths[1] for a, b in zip(ones, others, strict=True)]
    value = batch_distillation(own, previous).item()
    assert value == pytest.approx(math.hypot(*apart), rel=1e-9)


def test_batch_distillation_pulls_as_hard_when_near_and_is_flat_where_equal() -> None:
    previous = torch.eye(3, dtype=torch.float64)
    sizes = []
    for step in (1e-1, 1e-4):
        own = (previous + step * previous.roll(1, 0)).requires_grad_()
        batch_distillation(own, previous).backward()
        assert own.grad is not None
        sizes.append(own.grad.norm().item())
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)  # a squared distance would fade
    same = previous.clone().requires_grad_()
    batch_distillation(same, previous).backward()
    assert same.grad is not None and same.grad.abs().max() == 0


def test_a_rounding_error_pulls_nowhere() -> None:
    previous = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    own = (previous * (1 + 1e-7)).requires_grad_()
    assert not torch.equal(own.detach(), previous)
    batch_distillation(own, previous).backward()
    assert own.grad is not None and not own.grad.any()
