"""Retention terms: distances and hardness by loops, replayed features by their statistics."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare
from torch import Tensor

from goal.losses.distillation import feature_distillation
from goal.losses.replay import hardness, sample_prototypes


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=seeded(seed), dtype=torch.float64)


def test_distillation_is_the_mean_squared_distance() -> None:
    features, previous = normal(6, 5, 0).requires_grad_(), normal(6, 5, 1)
    total = 0.0
    for row, target in zip(features.tolist(), previous.tolist(), strict=True):
        total += math.dist(row, target) ** 2
    value = feature_distillation(features, previous)
    assert value.item() == pytest.approx(total / 6)
    assert feature_distillation(previous, features).item() == pytest.approx(total / 6)
    assert feature_distillation(previous, previous).item() == 0
    value.backward()
    assert features.grad is not None
    torch.testing.assert_close(features.grad, 2 * (features.detach() - previous) / 6)


def hardness_by_loop(prototypes: list[list[float]], temperature: float) -> list[float]:
    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    count = len(prototypes)
    weights = []
    for k in range(count):
        others = [cosine(prototypes[k], prototypes[j]) for j in range(count) if j != k]
        weights.append(math.exp(sum(others) / len(others) / temperature))
    return [weight / sum(weights) for weight in weights]


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 8), st.integers(1, 6), st.sampled_from([0.04, 0.1, 1.0]), st.integers(0, 99))
def test_hardness_is_the_loop_whatever_the_lengths(
    classes: int, width: int, temperature: float, seed: int
) -> None:
    prototypes = 3 * normal(classes, width, seed)
    expected = hardness_by_loop(prototypes.tolist(), temperature)
    np.testing.assert_allclose(hardness(prototypes, temperature).numpy(), expected, atol=1e-9)


def test_hardness_of_a_crowded_pair_and_a_loner() -> None:
    easy = hardness(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 0.1)
    # Mean cosines 1/2, 1/2 and 0: the pair is e^5 times as likely as the loner.
    np.testing.assert_allclose((easy / easy[2]).numpy(), [math.exp(5), math.exp(5), 1], rtol=1e-4)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_hardness_of_identical_prototypes_is_uniform(classes: int) -> None:
    same = torch.ones(classes, 3)
    torch.testing.assert_close(hardness(same, 0.04), torch.full((classes,), 1 / classes))


COUNT = 20_000
PROTOTYPES = F.normalize(normal(5, 8, 3) + 0.5, dim=1).float()
RADIUS = torch.tensor(0.2)


def test_classes_are_replayed_as_often_as_they_are_hard() -> None:
    _, classes = sample_prototypes(PROTOTYPES, RADIUS, COUNT, 0.3, seeded(0))
    expected = np.array(hardness_by_loop(PROTOTYPES.double().tolist(), 0.3))
    assert expected.max() > 1.3 * expected.min()  # else any even draw would pass
    counts = np.bincount(classes.numpy(), minlength=5)
    assert chisquare(counts, COUNT * expected).pvalue > 1e-3


def test_features_lie_around_the_prototype_of_their_class() -> None:
    features, classes = sample_prototypes(PROTOTYPES, RADIUS, COUNT, 0.3, seeded(1))
    assert features.shape == (COUNT, 8)
    for label in range(5):
        noise = (features[classes == label] - PROTOTYPES[label]).double().numpy() / 0.2
        rows = len(noise)
        assert np.abs(noise.mean(axis=0)).max() < 4.5 / math.sqrt(rows)
        spread = (noise**2).sum(axis=0)  # of unit normals: chi-square with as many degrees as rows
        assert chi2.ppf(1e-5, rows) < spread.min() and spread.max() < chi2.ppf(1 - 1e-5, rows)
        correlation = np.corrcoef(noise.T) - np.eye(8)
        assert np.abs(correlation).max() < 4.5 / math.sqrt(rows)


def test_without_a_radius_features_are_the_prototypes() -> None:
    features, classes = sample_prototypes(PROTOTYPES, torch.zeros(()), 50, 0.1, seeded(2))
    assert torch.equal(features, PROTOTYPES[classes])


def test_one_known_class_is_always_the_one() -> None:
    _, classes = sample_prototypes(PROTOTYPES[:1], RADIUS, 7, 0.1, seeded(0))
    assert classes.tolist() == [0] * 7


def test_draws_come_from_the_generator_and_from_nowhere_else() -> None:
    before = torch.get_rng_state()
    rng = seeded(4)
    once = sample_prototypes(PROTOTYPES, RADIUS, 30, 0.1, rng)
    again = sample_prototypes(PROTOTYPES, RADIUS, 30, 0.1, seeded(4))
    later = sample_prototypes(PROTOTYPES, RADIUS, 30, 0.1, rng)
    assert torch.equal(once[0], again[0]) and torch.equal(once[1], again[1])
    assert not torch.equal(once[0], later[0])
    assert torch.equal(before, torch.get_rng_state())
