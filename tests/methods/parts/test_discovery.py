"""Discovery: EM by loops, planted classes, and stages that make it hard."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from goal.methods.parts.discovery import discover, expect_and_maximise


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def planted(counts: list[int], apart: float = 12.0, width: int = 8) -> tuple[Tensor, Tensor]:
    """Round classes around random centres, and the centres."""
    centres = apart * torch.nn.functional.normalize(
        torch.randn(len(counts), width, generator=seeded(5), dtype=torch.float64), dim=1
    )
    classes = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    noise = torch.randn(len(classes), width, generator=seeded(6), dtype=torch.float64)
    return centres[classes] + noise, centres


def em_by_loops(points: Tensor, known: Tensor, new: Tensor, temperature: float) -> Tensor:
    """The same mixture, one image and one class at a time."""
    share, start = 0.5, new.clone()
    for _ in range(50):
        weights = np.zeros((len(points), len(start)))
        for n, point in enumerate(points):
            logs = []
            for mean in known:
                prior = math.log((1 - share) / len(known))
                logs.append(prior - float((point - mean) @ (point - mean)) / (2 * temperature))
            for mean in start:
                prior = math.log(share / len(start))
                logs.append(prior - float((point - mean) @ (point - mean)) / (2 * temperature))
            top = max(logs)
            total = sum(math.exp(value - top) for value in logs)
            for m in range(len(start)):
                weights[n, m] = math.exp(logs[len(known) + m] - top) / total
        share = weights.sum() / len(points)
        for m in range(len(start)):
            start[m] = torch.from_numpy(weights[:, m]) @ points / weights[:, m].sum()
    return start


def test_em_equals_loops() -> None:
    points, centres = planted([6, 5, 7, 4], apart=4.0)
    start = centres[2:] + 0.5
    found = expect_and_maximise(points, centres[:2], start, temperature=2.0)
    assert torch.allclose(found.means_Md, em_by_loops(points, centres[:2], start, 2.0), atol=1e-4)
    assert bool((found.shares_NM.sum(dim=1) <= 1 + 1e-9).all())


@pytest.mark.parametrize("old", [0, 3, 30])
def test_planted_classes_are_found(old: int) -> None:
    counts = [old, old, old, 40, 40]
    points, centres = planted(counts)
    found = discover(points, centres[:3], 2, temperature=2.0, parts=4, restarts=5, rng=seeded())
    truth = np.repeat(np.arange(5), counts)
    new = truth >= 3
    guess = found.shares_NM.argmax(dim=1).numpy()
    assert adjusted_rand_score(truth[new], guess[new]) > 0.95
    assert float(found.shares_NM.sum(dim=1).numpy()[new].min()) > 0.5
    if old:
        assert float(found.shares_NM.sum(dim=1).numpy()[~new].max()) < 0.5


@pytest.mark.parametrize("counts", [[0, 0, 2], [5, 5, 0], [1, 0, 0]])
def test_odd_stages_give_finite_classes(counts: list[int]) -> None:
    points, centres = planted(counts)
    found = discover(points, centres[:2], 3, temperature=4.0, parts=4, restarts=2, rng=seeded())
    assert found.means_Md.shape == (3, 8) and found.shares_NM.shape == (len(points), 3)
    assert bool(torch.isfinite(found.means_Md).all())


def test_identical_images_do_not_break_it() -> None:
    points = torch.zeros(9, 4, dtype=torch.float64)
    known = torch.ones(2, 4, dtype=torch.float64)
    found = discover(points, known, 2, temperature=4.0, parts=4, restarts=2, rng=seeded())
    assert bool(torch.isfinite(found.means_Md).all())
