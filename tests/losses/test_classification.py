"""Unsupervised classification terms against scipy, loops, hand values and analytic gradients."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import Tensor

from goal.losses.classification import (
    entropy,
    negative_group_entropy,
    negative_mean_entropy,
    self_distillation,
)


def cosines(batch: int, classes: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(batch, classes, generator=rng, dtype=torch.float64) - 1


def shannon(values: npt.NDArray[np.float64] | list[float]) -> float:
    return -math.fsum(v * math.log(v) for v in values if v > 0)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.04, 0.07]), st.integers(0, 99))
def test_self_distillation_is_the_loop(batch: int, classes: int, cold: float, seed: int) -> None:
    first, second = cosines(batch, classes, seed), cosines(batch, classes, seed + 100)
    total = 0.0
    for one, other in ((first.numpy(), second.numpy()), (second.numpy(), first.numpy())):
        for i in range(batch):
            target, student = softmax(other[i] / cold), log_softmax(one[i] / 0.1)
            total -= sum(target[k] * student[k] for k in range(classes)) / batch
    value = self_distillation(first, second, 0.1, cold).item()
    assert value == pytest.approx(total / 2, rel=1e-9, abs=1e-12)
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
    assert self_distillation(second[order], first[order], 0.1, cold).item() == pytest.approx(value)


def test_self_distillation_sends_no_gradient_through_the_targets() -> None:
    first, second = cosines(4, 5, 1).requires_grad_(), cosines(4, 5, 2).requires_grad_()
    self_distillation(first, second, 0.1, 0.05).backward()
    # Cross-entropy towards a constant z: (softmax(own / t) - z) / t, over 4 images, 2 directions.
    for own, other in ((first, second), (second, first)):
        student = softmax(own.detach().numpy() / 0.1, axis=1)
        target = softmax(other.detach().numpy() / 0.05, axis=1)
        assert own.grad is not None
        np.testing.assert_allclose(own.grad.numpy(), (student - target) / 0.1 / 8, atol=1e-12)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_entropy_is_shannons_along_the_last_dimension(weights: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    stacked = torch.from_numpy(np.stack([shares, shares[::-1].copy()]))
    np.testing.assert_allclose(entropy(stacked).numpy(), shannon(shares), atol=1e-12)


def test_mean_entropy_is_of_the_mean_and_not_the_mean_of_entropies() -> None:
    decided = torch.eye(4, dtype=torch.float64)  # every image certain, every class used once
    assert negative_mean_entropy(decided).item() == pytest.approx(-math.log(4))
    assert negative_mean_entropy(decided[[0, 0, 0]]).item() == pytest.approx(0, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(1, 7), st.data(), st.integers(0, 99))
def test_group_entropy_is_the_loop(
    batch: int, classes: int, data: st.DataObject, seed: int
) -> None:
    known = data.draw(st.integers(0, classes))
    probabilities = (cosines(batch, classes, seed) / 0.1).softmax(dim=1)
    table = probabilities.tolist()
    mean = [math.fsum(row[k] for row in table) / batch for k in range(classes)]
    masses = [math.fsum(mean[:known]), math.fsum(mean[known:])]
    expected = shannon(masses)
    for group, mass in ((mean[:known], masses[0]), (mean[known:], masses[1])):
        expected += shannon([share / mass for share in group])
    value = negative_group_entropy(probabilities, known).item()
    assert value == pytest.approx(-expected, abs=1e-6)  # shares are clamped at 1e-8
    if known == 0:  # without known classes there is nothing to tell apart from the new ones
        assert value == pytest.approx(negative_mean_entropy(probabilities).item(), abs=1e-9)


def test_group_entropy_of_the_hand_made_example() -> None:
    mean = torch.tensor([[0.4, 0.1, 0.3, 0.2]], dtype=torch.float64)
    # masses 1/2, 1/2; within known 4/5, 1/5; within new 3/5, 2/5
    expected = 0.693147 + 0.500402 + 0.673012
    assert negative_group_entropy(mean, 2).item() == pytest.approx(-expected, abs=1e-5)
    inside = mean[:, [1, 0, 3, 2]]
    across = mean[:, [0, 2, 1, 3]]
    assert negative_group_entropy(inside, 2).item() == pytest.approx(-expected, abs=1e-5)
    assert abs(negative_group_entropy(across, 2).item() + expected) > 1e-2


@pytest.mark.parametrize("known", [0, 2, 4])
@pytest.mark.parametrize("temperature", [0.04, 1e-3])
def test_all_mass_on_one_class_gives_finite_values_and_gradients(
    known: int, temperature: float
) -> None:
    scores = torch.full((3, 4), -1.0)
    scores[:, 3 if known < 4 else 0] = 1.0
    scores.requires_grad_()
    probabilities = (scores / temperature).softmax(dim=1)
    terms = [
        self_distillation(scores, scores.flip(1), 0.1, temperature),
        negative_mean_entropy(probabilities),
        negative_group_entropy(probabilities, known),
    ]
    for term in terms:
        assert bool(term.isfinite())
        (gradient,) = torch.autograd.grad(term, scores, retain_graph=True)
        assert bool(gradient.isfinite().all())
    # One class takes everything: the entropies vanish (an empty group has none either).
    assert terms[1].item() == pytest.approx(0, abs=1e-5)
