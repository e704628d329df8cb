"""Whitened spaces and the memory of shapes, against their definitions and scipy."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from goal.methods.parts import shape_memory
from goal.methods.parts import whitening as whitening_module
from goal.methods.parts.shape_memory import MOST, ShapeMemory
from goal.methods.parts.whitening import Whitening, sphere_share


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(count: int, width: int, seed: int = 0) -> Tensor:
    mixing = torch.randn(width, width, generator=seeded(99), dtype=torch.float64)
    return torch.randn(count, width, generator=seeded(seed), dtype=torch.float64) @ mixing


def test_the_scatter_within_classes_becomes_round() -> None:
    features, labels = points(300, 6), torch.arange(300) % 3
    whitening = Whitening(4)
    whitening.fit(features.float(), labels, 3)
    found = whitening(features.float())
    assert found.shape == (300, 4)
    away = torch.cat([found[labels == k] - found[labels == k].mean(dim=0) for k in range(3)])
    scatter = (away.T @ away / 300).numpy()
    # (1 - q) S + q tr(S)/d I is whitened, not S itself: solve for S along its own directions.
    eigenvalues = np.linalg.eigvalsh(scatter)
    raw = whitening._reduce(features.float().double())
    inside = torch.cat([raw[labels == k] - raw[labels == k].mean(dim=0) for k in range(3)])
    values = np.linalg.eigvalsh((inside.T @ inside / 300).numpy())
    sphere = 4 / 304
    assert sphere_share(300, 4) == sphere
    expected = np.sort(values / ((1 - sphere) * values + sphere * values.mean()))
    assert np.allclose(eigenvalues, expected, rtol=1e-6)


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0]])
def test_whitening_survives_tiny_stages(labels: list[int]) -> None:
    whitening = Whitening(4)
    features = torch.randn(len(labels), 5, generator=seeded())
    whitening.fit(features, torch.tensor(labels), max(labels) + 1)
    assert bool(torch.isfinite(whitening(features)).all())


def covariance(samples: Tensor, weights: Tensor, mean: Tensor, share: float) -> Tensor:
    """(1 - s) I + s S by loops, S scaled to the trace of I."""
    width = samples.shape[1]
    total = torch.zeros(width, width, dtype=torch.float64)
    for sample, weight in zip(samples, weights, strict=True):
        total += weight * torch.outer(sample - mean, sample - mean)
    eye = torch.eye(width, dtype=torch.float64)
    return (1 - share) * eye + share * total * width / total.trace()


def test_scores_are_log_densities() -> None:
    width, share = 5, 0.3
    samples = points(40, width)
    weights = torch.rand(40, 2, generator=seeded(1), dtype=torch.float64)
    memory = ShapeMemory(width, share, rank=width)
    memory.learn(samples, weights, torch.zeros(2, width))
    fresh = points(7, width, seed=3)
    expected = []
    for column in weights.T:
        mean = (column[:, None] * samples).sum(dim=0) / column.sum()
        full = covariance(samples, column, mean, share)
        expected.append(multivariate_normal(mean.numpy(), full.numpy()).logpdf(fresh.numpy()))
    constant = width * (np.log(2 * np.pi) + np.log(1 - share)) / 2
    found = memory(fresh).numpy() - constant
    assert np.allclose(found, np.stack(expected, axis=1), rtol=1e-5)


def test_single_precision_is_exact_enough_whatever_is_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores are softened by about a twentieth before they decide: a thousandth is far below."""
    width, classes = 384, 5
    samples = 3 * torch.randn(500, width, generator=seeded(), dtype=torch.float64)
    memory = ShapeMemory(width, 0.03, rank=64)
    shares = torch.eye(classes).repeat(100, 1)
    memory.learn(samples, shares, torch.zeros(classes, width))
    exact = memory(samples)
    monkeypatch.setattr(shape_memory, "_ROOM", 7 * classes * 64)
    found = memory(samples.float())
    assert found.dtype == torch.float32 and exact.dtype == torch.float64
    assert float((found - exact).abs().max()) < 1e-3 * 5
    rounded = ShapeMemory(width, 0.03, rank=64)
    rounded.learn(samples.float(), shares, torch.zeros(classes, width))
    assert torch.allclose(rounded.means, memory.means, atol=1e-5)


def test_nothing_as_large_as_a_stage_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = torch.linalg.eigh

    def watched(square: Tensor) -> Any:
        sizes.append(len(square))
        return plain(square)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a singular value decomposition")

    monkeypatch.setattr(torch.linalg, "eigh", watched)
    monkeypatch.setattr(torch.linalg, "svd", refused)
    memory = ShapeMemory(6, 0.2, rank=4)
    shares = torch.cat([torch.eye(3).repeat(1000, 1), torch.zeros(3000, 3)])
    memory.learn(points(6000, 6), shares, torch.zeros(3, 6))
    assert len(memory) == 3 and sizes == [6, 6, 6]


def test_a_low_rank_keeps_the_largest_directions() -> None:
    samples = points(30, 6)
    weights = torch.ones(30, 1)
    whole, cut = ShapeMemory(6, 0.2, rank=6), ShapeMemory(6, 0.2, rank=2)
    for memory in (whole, cut):
        memory.learn(samples, weights, torch.zeros(1, 6))
    assert torch.allclose(cut.spreads, whole.spreads[:, :2])
    assert bool((whole.spreads[:, :-1] >= whole.spreads[:, 1:]).all())


def test_learning_more_leaves_the_known_alone_and_an_empty_class_has_its_place() -> None:
    memory = ShapeMemory(4, 0.1, rank=3)
    samples = points(20, 4)
    memory.learn(samples, torch.ones(20, 1), torch.zeros(1, 4))
    before, parts = (
        memory(samples),
        {key: part.clone() for key, part in memory.state_dict().items()},
    )
    instead = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    memory.learn(samples, torch.zeros(20, 1), instead)
    for key, part in parts.items():
        assert torch.equal(memory.state_dict()[key][: len(part)], part), key
    assert torch.allclose(memory(samples)[:, :1], before, rtol=1e-12)  # products of another shape
    assert torch.equal(memory.means[1], instead[0].double())
    distance = (samples - instead.double()).square().sum(dim=1)
    assert torch.allclose(memory(samples)[:, 1], -distance / 0.9 / 2)


def test_a_large_class_is_shaped_by_some_of_its_images_and_centred_by_all() -> None:
    samples = points(3 * MOST + 7, 6)
    memory, exact = ShapeMemory(6, 0.2, rank=6), ShapeMemory(6, 0.2, rank=6)
    memory.learn(samples, torch.ones(len(samples), 1), torch.zeros(1, 6))
    exact.learn(samples[::4], torch.ones(len(samples[::4]), 1), torch.zeros(1, 6))
    assert torch.allclose(memory.means[0], samples.mean(dim=0))
    assert torch.allclose(memory.spreads, exact.spreads, rtol=0.01)
    full = covariance(samples, torch.ones(len(samples)).double(), samples.mean(dim=0), 1.0)
    found = (memory.directions[0] * memory.spreads[0]).double() @ memory.directions[0].double().T
    assert float((found / 0.2 - full).norm() / full.norm()) < 0.1


def test_images_that_hardly_belong_change_nothing() -> None:
    samples = torch.cat([points(30, 6), 100 + points(30, 6, seed=4)])
    weights = torch.cat([torch.ones(30, 1), torch.full((30, 1), 1e-12)])
    with_them, without = ShapeMemory(6, 0.2, rank=6), ShapeMemory(6, 0.2, rank=6)
    with_them.learn(samples, weights, torch.zeros(1, 6))
    without.learn(samples[:30], weights[:30], torch.zeros(1, 6))
    assert torch.allclose(with_them.means, without.means, atol=1e-6)
    assert torch.allclose(with_them.spreads, without.spreads, atol=1e-6)


def test_few_images_are_whitened_carefully() -> None:
    """Held-out images of classes of few images are recognised better than by a bare scatter."""
    rng = seeded(3)
    centres = torch.randn(10, 60, generator=rng)
    labels = torch.arange(10).repeat_interleave(8)
    spread = torch.linspace(1.5, 2.5, 60)
    train = centres[labels] + spread * torch.randn(80, 60, generator=rng)
    test = centres[labels] + spread * torch.randn(80, 60, generator=rng)

    def right(sphere: float | None, monkey: pytest.MonkeyPatch) -> float:
        if sphere is not None:
            monkey.setattr(whitening_module, "sphere_share", lambda images, dimensions: sphere)
        space = Whitening(60)
        space.fit(train, labels, 10)
        known = torch.stack([space(train)[labels == k].mean(dim=0) for k in range(10)])
        return float((torch.cdist(space(test), known).argmin(dim=1) == labels).float().mean())

    with pytest.MonkeyPatch.context() as monkey:
        careful = right(None, monkey)
        bare = right(0.02, monkey)
    assert careful > bare + 0.05
