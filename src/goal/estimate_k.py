"""How many new classes are in a stage's images.

All estimators look at unit features of the stage's images, at the means of the known classes, and
at what stage 0 measured of them (`measure_known`): no image needs to be kept.

Shapes: N images, D features, K known classes, C centres, R reduced features.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from goal.clustering import class_means, kmeans
from goal.errors import pick

AXES = 64
SHRINK = 0.5
_LLOYD_STEPS = 20
_CANDIDATES = 5


class Spread(NamedTuple):
    """How the classes of stage 0 spread: tensors only, so that it can be stored as it is.

    Attributes:
        within_DD: Covariance of features about their class mean, every class counted alike.
        gap: How deep the valley between two clusters must be if they are two classes.
    """

    within_DD: Tensor
    gap: Tensor


def measure_known(features_ND: Tensor, labels_N: Tensor, count: int) -> tuple[Tensor, Spread]:
    """Measure labelled classes at stage 0.

    Args:
        features_ND: Unit features.
        labels_N: Their classes, in 0..count-1.
        count: Number of classes.

    Returns:
        Class means (count, D), to which later stages append those of what they found, and the
        classes' spread, which stays as it is.
    """
    features = features_ND.double()
    means = class_means(features, labels_N, count)
    centred = features - means[labels_N]
    weights_N1 = 1 / (count * torch.bincount(labels_N, minlength=count)[labels_N])[:, None]
    within = (centred * weights_N1).T @ centred
    points_NR = features @ _axes(features, within)
    return means.to(features_ND.dtype), Spread(within, _valley(points_NR, labels_N, count))


def estimate_new(
    features_ND: Tensor,
    known_means_KD: Tensor,
    known_spread: Spread,
    most: int,
    rng: torch.Generator,
    estimator: str = "auto",
) -> int:
    """Estimate the number of new classes in a stage's images.

    Args:
        features_ND: Unit features of the stage's images, known and new ones mixed.
        known_means_KD: Means of all classes known so far, in the same feature space.
        known_spread: What `measure_known` said at stage 0.
        most: Largest answer allowed.
        rng: Source of clustering starts.
        estimator: A key of `ESTIMATORS`.

    Returns:
        The number of new classes, 0 to `most`; 0 means that nothing is new.
    """
    chosen = pick(ESTIMATORS, estimator, "estimator")
    features, known = features_ND.double().cpu(), known_means_KD.double().cpu()
    most = min(most, len(features))
    if most < 1:
        return 0
    axes_DR = _axes(features, known_spread.within_DD)
    partitions = _grow(features @ axes_DR, known @ axes_DR, most, rng)
    return chosen(partitions, known_spread)


class Partition(NamedTuple):
    """The stage's images around the known means, which stay put, and some new centres."""

    points_NR: Tensor
    centres_CR: Tensor
    num_known: int
    labels_N: Tensor
    distortion: float


Estimator = Callable[[list[Partition], Spread], int]


def silhouette(partitions: list[Partition], spread: Spread) -> int:
    """Largest mean silhouette (Rousseeuw 1987)."""
    scores = []
    for part in partitions:
        present = len(part.labels_N.unique())
        valid = 1 < present < len(part.labels_N)
        points, labels = part.points_NR.numpy(), part.labels_N.numpy()
        scores.append(float(silhouette_score(points, labels)) if valid else -1.0)
    return int(np.argmax(scores))


def elbow(partitions: list[Partition], spread: Spread) -> int:
    """Where the curve of distortions lies farthest below the line between its ends."""
    curve = np.array([part.distortion for part in partitions])
    line = np.linspace(curve[0], curve[-1], len(curve))
    return int(np.argmax(line - curve))


def bic(partitions: list[Partition], spread: Spread) -> int:
    """Bayesian information criterion of round clusters of one size (as in X-means)."""
    count, width = partitions[0].points_NR.shape
    costs = [
        count * width * np.log(max(part.distortion, 1e-300)) + new * (width + 1) * np.log(count)
        for new, part in enumerate(partitions)
    ]
    return int(np.argmin(costs))


def ruler(partitions: list[Partition], spread: Spread) -> int:
    """Cut finely, then join clusters unless a valley as between known classes parts them."""
    part = partitions[-1]
    groups = list(part.labels_N[part.labels_N >= part.num_known].unique())
    clusters = [part.points_NR[part.labels_N == label] for label in groups]
    known = part.centres_CR[: part.num_known]
    return len(_joined(clusters, known, float(spread.gap)))


ESTIMATORS: dict[str, Estimator] = {
    "auto": ruler,
    "ruler": ruler,
    "silhouette": silhouette,
    "elbow": elbow,
    "bic": bic,
}


def _axes(features_ND: Tensor, within_DD: Tensor) -> Tensor:
    """Directions to look along: the main ones once known classes spread about alike, (D, R)."""
    within, eye = within_DD.double(), torch.eye(len(within_DD), dtype=torch.float64)
    scale = within.trace() / len(within)
    values, vectors = torch.linalg.eigh((1 - SHRINK) * within + SHRINK * scale * eye)
    rounding_DD = vectors / values.clamp_min(1e-12).sqrt()
    _, main_DD = torch.linalg.eigh(torch.cov((features_ND @ rounding_DD).T))
    return torch.as_tensor(rounding_DD @ main_DD[:, -AXES:])


def _grow(points: Tensor, known: Tensor, most: int, rng: torch.Generator) -> list[Partition]:
    """Partitions with 0 to `most` new centres, each started from the one before."""
    partitions = [_settle(points, known, len(known), steps=0)]
    for _ in range(most):
        last = partitions[-1]
        distance = torch.cdist(points, last.centres_CR).amin(dim=1).square() + 1e-300
        seeds = torch.multinomial(distance, _CANDIDATES, replacement=True, generator=rng)
        trials = [
            _settle(points, torch.cat([last.centres_CR, points[seed][None]]), len(known), steps=2)
            for seed in seeds
        ]
        best = min(trials, key=lambda trial: trial.distortion)
        partitions.append(_settle(points, best.centres_CR, len(known), _LLOYD_STEPS))
    return partitions


def _settle(points: Tensor, centres: Tensor, num_known: int, steps: int) -> Partition:
    """Lloyd's algorithm in which the first centres do not move."""
    labels = torch.cdist(points, centres).argmin(dim=1)
    for _ in range(steps):
        means = class_means(points, labels, len(centres))
        filled = torch.bincount(labels, minlength=len(centres)) > 0
        filled[:num_known] = False
        centres = torch.where(filled[:, None], means, centres)
        before, labels = labels, torch.cdist(points, centres).argmin(dim=1)
        if torch.equal(before, labels):
            break
    distortion = float((points - centres[labels]).square().sum(dim=1).mean())
    return Partition(points, centres, num_known, labels, distortion)


def _joined(clusters: list[Tensor], known_KR: Tensor, gap: float) -> list[Tensor]:
    """Join the least separated clusters until every valley is deeper than `gap`."""
    while len(clusters) > 1:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i)]
        depths = [_depth(clusters[i], clusters[j]) for i, j in pairs]
        lowest = int(np.argmin(depths))
        if depths[lowest] >= gap:
            break
        i, j = pairs[lowest]
        clusters[j] = torch.cat([clusters[j], clusters[i]])
        del clusters[i]
    return clusters


def _depth(first_NR: Tensor, second_NR: Tensor) -> float:
    """Distance of two clusters on the line between them, in deviations on that line.

    The line is drawn through one half of the points and the other half is measured on it, cut in
    the middle, so that a chance direction of high spread does not pass for a valley.
    """
    if min(len(first_NR), len(second_NR)) < 4:
        return 0.0
    found = []
    for fold in (0, 1):
        left, right = first_NR[fold::2].mean(dim=0), second_NR[fold::2].mean(dim=0)
        line = right - left
        other = torch.cat([first_NR[1 - fold :: 2], second_NR[1 - fold :: 2]])
        place = (other - (left + right) / 2) @ line / line.norm().clamp_min(1e-12)
        below, above = place[place < 0], place[place >= 0]
        if min(len(below), len(above)) < 2:
            return 0.0
        inner = torch.cat([below - below.mean(), above - above.mean()]).square().mean().sqrt()
        found.append(float((above.mean() - below.mean()) / inner.clamp_min(1e-12)))
    return sum(found) / len(found)


def _valley(points_NR: Tensor, labels_N: Tensor, count: int) -> Tensor:
    """Depth that tells two known classes from two halves of one, measured on both."""
    rng = torch.Generator().manual_seed(0)
    means = class_means(points_NR, labels_N, count)
    apart = torch.cdist(means, means) + torch.diag(torch.full((count,), torch.inf))
    halves, pairs = [], []
    for label in range(count):
        mine = points_NR[labels_N == label]
        halves.append(_cut(mine, rng))
        if count > 1:
            other = points_NR[labels_N == apart[label].argmin()]
            pairs.append(_cut(torch.cat([mine, other]), rng))
    if not pairs:
        return torch.tensor(1.5 * max(halves), dtype=torch.float64)
    candidates = sorted([*halves, *pairs])
    middles = [(a + b) / 2 for a, b in pairwise(candidates)]
    wrong = [sum(h > m for h in halves) + sum(p < m for p in pairs) for m in middles]
    best = [m for m, w in zip(middles, wrong, strict=True) if w == min(wrong)]
    return torch.tensor(best[len(best) // 2], dtype=torch.float64)


def _cut(points_NR: Tensor, rng: torch.Generator) -> float:
    """Depth of the valley that 2-means finds in some points."""
    if len(points_NR) < 8:
        return 0.0
    sides, _ = kmeans(points_NR, 2, rng, restarts=3)
    return _depth(points_NR[sides == 0], points_NR[sides == 1])
