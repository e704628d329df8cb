"""Estimating the number of new classes: planted classes, and criteria done by hand."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import silhouette_score
from torch import Tensor

from goal.common.errors import GoalError
from goal.counting import estimators as estimate_k
from goal.counting.estimators import (
    ESTIMATORS,
    Candidates,
    Partition,
    WithinClass,
    candidates,
    estimate_new,
    measure_known,
    new_clusters,
)

KNOWN = 4
WIDTH = 16


def planted(counts: dict[int, int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit features scattered around one direction per class, and their classes, shuffled."""
    rng = torch.Generator().manual_seed(7)
    centres, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=rng))
    rng = torch.Generator().manual_seed(seed)
    listed = torch.cat([torch.full((count,), label) for label, count in counts.items()])
    classes = listed[torch.randperm(len(listed), generator=rng)]
    noise = torch.randn(len(classes), WIDTH, generator=rng)
    return F.normalize(centres[classes] + 0.12 * noise, dim=1), classes


def known() -> tuple[Tensor, WithinClass]:
    return measure_known(*planted(dict.fromkeys(range(KNOWN), 60)), KNOWN)


def stage(num_new: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    counts = dict.fromkeys(range(KNOWN), 10) | dict.fromkeys(range(KNOWN, KNOWN + num_new), 50)
    return planted(counts, seed)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("num_new", [0, 1, 2, 5])
def test_the_ruler_counts_planted_classes(num_new: int) -> None:
    features, _ = stage(num_new)
    assert estimate_new(features, *known(), 8, rng()) == num_new


@pytest.mark.parametrize(("name", "num_new"), [("silhouette", 2), ("silhouette", 5), ("elbow", 2)])
def test_the_classics_count_planted_classes(name: str, num_new: int) -> None:
    features, _ = stage(num_new)
    assert estimate_new(features, *known(), 8, rng(), name) == num_new


def test_known_images_alone_are_nothing_new_however_many() -> None:
    features, _ = planted(dict.fromkeys(range(KNOWN), 80), seed=2)
    assert estimate_new(features, *known(), 8, rng()) == 0


@pytest.mark.parametrize("apart", [0.9, 1.8])
def test_outskirts_of_known_classes_are_nothing_new(apart: float) -> None:
    """Many images of classes that were measured on few, in more dimensions than images tell."""
    rng = torch.Generator().manual_seed(0)
    scales = torch.arange(1, 257).rsqrt()
    centres = apart * torch.randn(20, 256, generator=rng) * scales

    def draw(count: int) -> Tensor:
        noise = torch.randn(20 * count, 256, generator=rng)
        return F.normalize(centres.repeat(count, 1) + noise * scales, dim=1)

    measured = measure_known(draw(16), torch.arange(20).repeat(16), 20)
    found = candidates(draw(48), *measured, 12, torch.Generator().manual_seed(1))
    assert estimate_k.ruler(found) == 0


def test_clusters_are_the_planted_classes() -> None:
    features, classes = stage(3)
    clusters = torch.from_numpy(new_clusters(features, *known(), 8, rng()))
    assert set(clusters[classes < KNOWN].tolist()) == {-1}
    for label in range(KNOWN, KNOWN + 3):
        assert len(clusters[classes == label].unique()) == 1
    assert clusters.unique().tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_answers_lie_in_range_and_repeat(name: str) -> None:
    features, _ = stage(4)
    for most in (0, 1, 3):
        found = estimate_new(features, *known(), most, rng(), name)
        assert 0 <= found <= most
        assert found == estimate_new(features, *known(), most, rng(), name)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_image_is_no_error(name: str, count: int) -> None:
    features, _ = stage(1)
    assert 0 <= estimate_new(features[:count], *known(), 5, rng(), name) <= count


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(GoalError, match="silhouette"):
        estimate_new(stage(1)[0], *known(), 3, rng(), "silhouete")


def test_known_classes_are_measured_as_numpy_measures_them() -> None:
    features, labels = planted({0: 20, 1: 7, 2: 13})
    means, within = measure_known(features, labels, 3)
    parts = [features[labels == label].double().numpy() for label in range(3)]
    np.testing.assert_allclose(means.numpy(), [part.mean(axis=0) for part in parts], atol=1e-6)
    pooled = np.mean([np.cov(part.T, bias=True) for part in parts], axis=0)
    np.testing.assert_allclose(within.within_DD.numpy(), pooled, atol=1e-9)


def test_small_classes_are_no_ruler() -> None:
    features, labels = planted({0: 3, 1: 3})
    _, within = measure_known(features, labels, 2)
    assert float(within.gap) == pytest.approx(estimate_k.VALLEY * 3.2)


def test_a_class_with_one_far_image_is_no_ruler() -> None:
    """Two-means parts that image from all others, which shows no valley of any depth."""
    features, labels = planted(dict.fromkeys(range(KNOWN), 60))
    plain = float(measure_known(features, labels, KNOWN)[1].gap)
    for label in range(2):
        features[(labels == label).nonzero()[0, 0]] = -9 * features[labels == label].mean(dim=0)
    gap = float(measure_known(features, labels, KNOWN)[1].gap)
    assert gap > 0.5 * plain


def test_the_halves_of_a_bell_are_as_deep_as_theory_says() -> None:
    """Each half of a normal has its mean sqrt(2/pi) from the middle, and variance 1 - 2/pi."""
    rng = torch.Generator().manual_seed(0)
    bell = torch.randn(20000, 1, generator=rng, dtype=torch.float64)
    depth = estimate_k._depth(bell[bell[:, 0] < 0], bell[bell[:, 0] >= 0])
    assert depth == pytest.approx(2 * math.sqrt(2 / math.pi) / math.sqrt(1 - 2 / math.pi), rel=0.03)
    apart = estimate_k._depth(bell, bell + 10)
    assert apart == pytest.approx(10, rel=0.03)


def test_a_chance_direction_is_no_valley() -> None:
    """In many dimensions any cut looks deep on the points that drew it; not on the others."""
    rng = torch.Generator().manual_seed(0)
    ball = torch.randn(60, 60, generator=rng, dtype=torch.float64)
    assert estimate_k._halves(ball) < 4


def curve(*distortions: float) -> Candidates:
    points = torch.zeros(10, 2, dtype=torch.float64)
    labels = torch.zeros(10, dtype=torch.int64)
    parts = [
        Partition(points, points[: 1 + new], 1, labels, value)
        for new, value in enumerate(distortions)
    ]
    return Candidates(parts, gap=4.0, own=1.0)


def test_the_runner_up_is_what_a_nudge_of_that_size_gives() -> None:
    features, _ = stage(2)
    found = candidates(features, *known(), 8, rng())
    sure = estimate_k.measured(found)
    assert sure.count == estimate_k.ruler(found) == 2 and sure.runner_up in (1, 3)
    for nudge, expected in ((0.98, 2), (1.02, sure.runner_up)):  # before and beyond the limit
        factor = 1 / (1 - sure.confidence) if sure.runner_up == 1 else 1 - sure.confidence
        moved = factor**nudge
        assert estimate_k.measured(found._replace(gap=found.gap * moved)).count == expected


def test_nothing_new_has_a_runner_up_by_bic() -> None:
    # 10 images in 2 dimensions: one centre more is worth it below 8 exp(-3 log(10) / 20) = 5.66.
    sure = estimate_k.measured(curve(8, 7))
    assert (sure.count, sure.runner_up) == (0, 1)
    assert sure.confidence == pytest.approx(1 - 8 * math.exp(-0.15 * math.log(10)) / 7)


def test_elbow_and_bic_by_hand() -> None:
    assert estimate_k.elbow(curve(10, 4, 3, 2, 1)) == 1
    assert estimate_k.elbow(curve(5, 4, 3, 2, 1)) == 0
    # 10 images in 2 dimensions: a centre costs 3 log 10 = 6.9, halving distortion wins 20 log 2.
    assert estimate_k.bic(curve(8, 4, 2, 1.9)) == 2
    assert estimate_k.bic(curve(8, 7)) == 0


def test_silhouette_takes_what_scikit_learn_scores_highest() -> None:
    features, _ = stage(3)
    found = candidates(features, *known(), 6, rng())
    scores = [silhouette_score(part.points_NR, part.labels_N) for part in found.partitions]
    assert estimate_k.silhouette(found) == int(np.argmax(scores))


def test_known_centres_stay_and_distortion_falls() -> None:
    features, _ = stage(3)
    means, _ = known()
    parts = estimate_k._grow(features.double(), means.double(), 6, rng())
    assert [len(part.centres_CR) for part in parts] == [KNOWN + new for new in range(7)]
    for part in parts:
        assert torch.equal(part.centres_CR[:KNOWN], means.double())
        gaps = features.double() - part.centres_CR[part.labels_N]
        assert part.distortion == pytest.approx(float(gaps.square().sum(dim=1).mean()))
    falling = [part.distortion for part in parts]
    assert falling == sorted(falling, reverse=True)
