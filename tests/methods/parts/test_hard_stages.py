"""Stages that are unlike those of any benchmark: planted, each with a stated outcome."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from goal.methods.parts.discovery import Found, discover, wariness

WIDTH = 16


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def centres(count: int) -> Tensor:
    made = torch.randn(count, WIDTH, generator=seeded(5), dtype=torch.float64)
    return 14 * torch.nn.functional.normalize(made, dim=1)


def stage(counts: list[int], moved: float = 0.0) -> tuple[Tensor, np.ndarray]:
    """Round classes of so many images, their centres moved so far, each its own way."""
    classes = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    ways = torch.randn(len(counts), WIDTH, generator=seeded(8), dtype=torch.float64)
    places = centres(len(counts)) + moved * torch.nn.functional.normalize(ways, dim=1)
    noise = torch.randn(len(classes), WIDTH, generator=seeded(6), dtype=torch.float64)
    return places[classes] + noise, classes.numpy()


def look(points: Tensor, num_known: int, num_new: int, total: int, **other: int) -> Found:
    known = centres(total)[:num_known]
    return discover(
        points, known, num_new, temperature=4.0, parts=4, restarts=5, rng=seeded(), **other
    )


def judged(found: Found, truth: np.ndarray, num_known: int) -> tuple[float, float]:
    """How well new classes are told apart, and the share of images whose novelty is seen."""
    new = truth >= num_known
    guess = found.shares_NM.argmax(dim=1).numpy()
    seen = found.shares_NM.sum(dim=1).numpy() > 0.5
    return adjusted_rand_score(truth[new], guess[new]), float((seen == new).mean())


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param([10, 10, 10, 3000, 20, 20], id="one huge class"),
        pytest.param([330, 330, 330, 5, 5, 5], id="about one percent new"),
        pytest.param([5, 5, 5, 95, 95, 95], id="95 percent new"),
        pytest.param([40, 40, 40, 10, 30, 100], id="sizes spread one to ten"),
    ],
)
def test_uneven_stages_are_sorted(counts: list[int]) -> None:
    points, truth = stage(counts)
    apart, novelty = judged(look(points, 3, 3, 6), truth, 3)
    assert apart > 0.99 and novelty > 0.99


def test_known_classes_that_drift_stay_known() -> None:
    points, truth = stage([40, 40, 40, 60, 60], moved=3.0)
    apart, novelty = judged(look(points, 3, 2, 5), truth, 3)
    assert apart > 0.99 and novelty > 0.99


def test_duplicates_alone_give_one_class_that_holds_them() -> None:
    points = centres(4)[3].expand(50, -1)
    found = look(points, 3, 1, 4)
    assert torch.allclose(found.means_Md[0], points[0])
    assert bool((found.shares_NM > 0.99).all())


def test_noise_gives_finite_classes_and_the_same_ones_again() -> None:
    points = 40 * torch.rand(200, WIDTH, generator=seeded(3), dtype=torch.float64) - 20
    first, second = look(points, 3, 4, 3), look(points, 3, 4, 3)
    assert bool(torch.isfinite(first.means_Md).all())
    assert torch.equal(first.means_Md, second.means_Md)
    assert torch.equal(first.shares_NM, second.shares_NM)


def test_a_sample_finds_what_the_whole_stage_shows() -> None:
    points, truth = stage([300, 300, 300, 900, 900, 300])
    whole, sampled = look(points, 3, 3, 6), look(points, 3, 3, 6, sample=400)
    assert sampled.shares_NM.shape == (len(points), 3)
    assert judged(sampled, truth, 3) > (0.99, 0.99)
    nearest = torch.cdist(sampled.means_Md, whole.means_Md).amin(dim=1)
    assert float(nearest.max()) < 1.5  # a mean of 40 images lies 4 / sqrt(40) off at most


def test_single_precision_finds_the_same() -> None:
    points, _ = stage([30, 30, 30, 60, 60])
    known = centres(5)[:3].float()
    found = discover(points.float(), known, 2, temperature=4.0, parts=4, restarts=5, rng=seeded())
    assert torch.allclose(found.shares_NM.double(), look(points, 3, 2, 5).shares_NM, atol=1e-4)


def test_shares_of_any_image_follow_bayes() -> None:
    points, _ = stage([5, 5, 30, 30])
    found = look(points, 2, 2, 4)
    odd = torch.randn(7, WIDTH, generator=seeded(1), dtype=torch.float64)
    for point, share in zip(odd, found.shares(odd), strict=True):
        known = [float((point - mean).square().sum()) for mean in found.known_Kd]
        new = [float((point - mean).square().sum()) for mean in found.means_Md]
        top = min(known + new)
        of_known = [(1 - found.novel) / 2 * np.exp((top - d) / 8) for d in known]
        of_new = [found.novel / 2 * np.exp((top - d) / 8) for d in new]
        total = sum(of_known) + sum(of_new)
        assert np.allclose(share.numpy(), np.array(of_new) / total)
    assert found.shares(odd[:0]).shape == (0, 2)


def test_wariness_falls_with_the_number_of_images() -> None:
    held = wariness(torch.tensor([0.0, 4.0, 25.0, 100.0]), 18.0)
    assert torch.allclose(held, torch.tensor([4.5, 4.5, 0.72, 0.18]))
