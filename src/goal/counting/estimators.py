"""How many new classes are in a stage's images.

All estimators look at unit features of the stage's images, at the means of the known classes, and
at what stage 0 measured of them (`measure_known`): no image needs to be kept.

They share one family of partitions: k-means around known means, which stay, and 0, 1, ... new ones.

Shapes: N images, D features, K known classes, C centres, R reduced features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from goal.common.errors import pick
from goal.numerics.clustering import class_means, kmeans, kmeans_beside

# Chosen on base classes that played the new ones (docs/decisions/0008).
AXES = 64  # principal directions that are looked at
SHRINK = 0.5  # how far the known classes' covariance is drawn to a ball before whitening by it
LEAST = 12  # images without which a cluster does not count as a class
OUTSIDE = 1.5  # squared distance to a known mean, over its own images', from where on it is not it
VALLEY = 1.25  # depth between two classes over the depth between the halves of a plain one

_USUAL_HALVES = 3.2  # depth between the halves of a class, where no known class is large enough
_LLOYD_STEPS = 20
_CANDIDATES = 5
_STEP = 16  # beyond twice as many new centres, a sixteenth of them is added at a time


class WithinClass(NamedTuple):
    """How images of a stage-0 class lie about their mean: tensors only, so it can be stored as is.

    Attributes:
        within_DD: Covariance of features about their class mean, every class counted alike.
        gap: How deep the valley between two clusters must be if they are two classes.
    """

    within_DD: Tensor
    gap: Tensor


class Partition(NamedTuple):
    """The stage's images around the known means, which come first, and some new centres."""

    points_NR: Tensor
    centres_CR: Tensor
    num_known: int
    labels_N: Tensor
    distortion: float

    @property
    def num_new(self) -> int:
        """New centres."""
        return len(self.centres_CR) - self.num_known


class Candidates(NamedTuple):
    """What estimators choose from.

    Attributes:
        partitions: With 0, 1, 2, ... new centres; beyond 32 in steps of a sixteenth.
        gap: See `WithinClass`.
        own: Mean squared distance of known classes' images from their means, in the same space.
    """

    partitions: list[Partition]
    gap: float
    own: float


Estimator = Callable[[Candidates], int]


@dataclass(frozen=True)
class Count:
    """A number of new classes, and how sure it is.

    Attributes:
        count: The number.
        runner_up: What it would be if one measurement, the one nearest to its limit, fell on the
            other side; None where there was nothing to measure.
        confidence: By which share that measurement would have to change for it, 0 to 1: the
            depth of a valley, the distance from a known class, or the scatter of the images.
    """

    count: int
    runner_up: int | None = None
    confidence: float = 1.0


class _Doubt(NamedTuple):
    """A measurement beside its limit: at a ratio of 1 the count would be another one."""

    ratio: float
    instead: int


def measure_known(features_ND: Tensor, labels_N: Tensor, count: int) -> tuple[Tensor, WithinClass]:
    """Measure labelled classes at stage 0.

    Args:
        features_ND: Unit features.
        labels_N: Their classes, in 0..count-1.
        count: Number of classes.

    Returns:
        Class means (count, D), to which later stages append those of what they found, and the
        measure within classes, which stays as it is.
    """
    features, labels = features_ND.double().cpu(), labels_N.cpu()
    means = class_means(features, labels, count)
    centred = features - means[labels]
    sizes = torch.bincount(labels, minlength=count).double()
    within = (centred / (count * sizes[labels])[:, None]).T @ centred
    points_NR = features @ _axes(features, within)
    classes = (points_NR[labels == label] for label in range(count))
    halves = [_halves(points) for points in classes if len(points) >= LEAST]
    # The lower quartile: a class that falls into parts by itself is no ruler; 0 is one far image.
    gap = VALLEY * float(np.quantile([h for h in halves if h] or [_USUAL_HALVES], 0.25))
    return means.to(features_ND), WithinClass(within, torch.tensor(gap, dtype=torch.float64))


def estimate_new(
    features_ND: Tensor,
    known_means_KD: Tensor,
    within_class: WithinClass,
    most: int,
    rng: torch.Generator,
    estimator: str = "auto",
) -> int:
    """Estimate the number of new classes in a stage's images.

    Args:
        features_ND: Unit features of the stage's images, known and new ones mixed.
        known_means_KD: Means of all classes known so far, in the same feature space.
        within_class: What `measure_known` said at stage 0.
        most: Largest answer allowed.
        rng: Source of clustering starts.
        estimator: A key of `ESTIMATORS`.

    Returns:
        The number of new classes, 0 to `most`; 0 means that nothing is new.
    """
    clusters = new_clusters(features_ND, known_means_KD, within_class, most, rng, estimator)
    return int(clusters.max(initial=-1)) + 1


def new_clusters(
    features_ND: Tensor,
    known_means_KD: Tensor,
    within_class: WithinClass,
    most: int,
    rng: torch.Generator,
    estimator: str = "auto",
) -> npt.NDArray[np.int64]:
    """Say which of the estimated new classes each image falls into, -1 for a known class, (N,).

    The arguments are those of `estimate_new`.
    """
    choose = pick(ESTIMATORS, estimator, "estimator")
    if not len(features_ND):
        return np.empty(0, dtype=np.int64)
    found = candidates(features_ND, known_means_KD, within_class, most, rng)
    chosen = _with_new(found, choose(found))
    labels = chosen.labels_N.numpy()
    new = labels >= chosen.num_known
    result = np.full(len(labels), -1)
    result[new] = np.unique(labels[new], return_inverse=True)[1]
    return result


def candidates(
    features_ND: Tensor,
    known_means_KD: Tensor,
    within_class: WithinClass,
    most: int,
    rng: torch.Generator,
    patience: int | None = None,
) -> Candidates:
    """Cut a stage's images into known classes and 0 to `most` new ones.

    With `patience` no finer cuts are made once `bic` has found so many in a row not worth it.
    """
    features, known = features_ND.double().cpu(), known_means_KD.double().cpu()
    within = within_class.within_DD.double().cpu()
    axes_DR = _axes(features, within)
    partitions = _grow(features @ axes_DR, known @ axes_DR, min(most, len(features)), rng, patience)
    own = float((axes_DR.T @ within @ axes_DR).trace())
    return Candidates(partitions, float(within_class.gap), own)


def silhouette(found: Candidates) -> int:
    """Largest mean silhouette (Rousseeuw 1987)."""
    scores = []
    for part in found.partitions:
        several = 1 < len(part.labels_N.unique()) < len(part.labels_N)
        points, labels = part.points_NR.numpy(), part.labels_N.numpy()
        scores.append(float(silhouette_score(points, labels)) if several else -1.0)
    return found.partitions[int(np.argmax(scores))].num_new


def elbow(found: Candidates) -> int:
    """Where the curve of distortions lies farthest below the line between its ends."""
    curve = np.array([part.distortion for part in found.partitions])
    counts = np.array([part.num_new for part in found.partitions])
    line = np.interp(counts, counts[[0, -1]], curve[[0, -1]])
    return int(counts[np.argmax(line - curve)])


def bic(found: Candidates) -> int:
    """Bayesian information criterion of a mixture of equal balls (as in X-means)."""
    costs = [_bic_cost(part) for part in found.partitions]
    return found.partitions[int(np.argmin(costs))].num_new


def _bic_cost(part: Partition) -> float:
    count, width = part.points_NR.shape
    fit = count * width * np.log(max(part.distortion, 1e-300))
    return float(fit + part.num_new * (width + 1) * np.log(count))


def ruler(found: Candidates) -> int:
    """Cut finely, drop what is known or tiny, join what no valley parts; known classes measure.

    No finer than `bic` finds worth it: where nothing is new, every cut goes through known classes.
    A cluster whose images are about as near to a known mean as that class's own is a piece of
    it. Two clusters are one class if the valley between them is about as shallow as the one
    that a cut through a known class shows.
    """
    return measured(found).count


def measured(found: Candidates) -> Count:
    """Count as `ruler` does, and tell how near each of its measurements came to its limit."""
    finest = bic(found)
    if finest == 0:
        return _sure_of(0, _doubts_of_bic(found))
    part = _with_new(found, finest)
    known = part.centres_CR[: part.num_known]
    kept, far = [], []
    for j, centre in enumerate(part.centres_CR[part.num_known :]):
        points = part.points_NR[part.labels_N == part.num_known + j]
        if len(points) >= LEAST:
            nearest = torch.cdist(points, known).square().mean(dim=0).min()
            far.append(float(nearest) / (OUTSIDE * found.own))
            kept += [centre] if far[-1] >= 1 else []
    if not kept:
        return _sure_of(0, [_Doubt(ratio, 1) for ratio in far])
    centres = torch.cat([known, torch.stack(kept)])
    labels = torch.cdist(part.points_NR, centres).argmin(dim=1)
    clusters = [part.points_NR[labels == part.num_known + j] for j in range(len(kept))]
    large = [points for points in clusters if len(points) >= LEAST]
    count, doubts = _count_joined(large, found.gap)
    if count == 1:  # with one class left, it is known after all if all its parts are
        doubts.append(_Doubt(max(ratio for ratio in far if ratio >= 1), 0))
    return _sure_of(count, doubts)


def _sure_of(count: int, doubts: list[_Doubt]) -> Count:
    """The count, with the measurement that came nearest to changing it."""
    if not doubts:
        return Count(count)
    shares = [1 - min(doubt.ratio, 1 / max(doubt.ratio, 1e-12)) for doubt in doubts]
    nearest = int(np.argmin(shares))
    return Count(count, doubts[nearest].instead, min(1.0, max(0.0, shares[nearest])))


def _doubts_of_bic(found: Candidates) -> list[_Doubt]:
    """How much less the images would have to scatter for one new class to be worth it."""
    if len(found.partitions) < 2:
        return []
    count, width = found.partitions[0].points_NR.shape
    price = np.exp(-(width + 1) * np.log(count) / (count * width))
    none, one = (max(part.distortion, 1e-300) for part in found.partitions[:2])
    return [_Doubt(float(price * none / one), 1)]


ESTIMATORS: dict[str, Estimator] = {
    "auto": ruler,
    "ruler": ruler,
    "silhouette": silhouette,
    "elbow": elbow,
    "bic": bic,
}


def _axes(features_ND: Tensor, within_DD: Tensor) -> Tensor:
    """Directions to look along: the main ones after whitening by the known classes, (D, R)."""
    eye = torch.eye(len(within_DD), dtype=torch.float64)
    ball = within_DD.trace() / len(within_DD)
    values, vectors = torch.linalg.eigh((1 - SHRINK) * within_DD + SHRINK * ball * eye)
    whitening_DD = vectors / values.clamp_min(1e-12).sqrt()
    _, main_DD = torch.linalg.eigh(
        torch.atleast_2d(torch.cov((features_ND @ whitening_DD).T, correction=0))
    )
    return torch.as_tensor(whitening_DD @ main_DD[:, -AXES:])


def _with_new(found: Candidates, count: int) -> Partition:
    """The partition with so many new centres, or the largest clusters of the next finer one."""
    finer = next(part for part in found.partitions if part.num_new >= count)
    if finer.num_new == count:
        return finer
    sizes = torch.bincount(finer.labels_N, minlength=len(finer.centres_CR))[finer.num_known :]
    largest = finer.num_known + sizes.argsort(descending=True, stable=True)[:count].sort().values
    centres = torch.cat([finer.centres_CR[: finer.num_known], finer.centres_CR[largest]])
    return _settle(finer.points_NR, centres, finer.num_known, _LLOYD_STEPS)


def _grow(
    points: Tensor, known: Tensor, most: int, rng: torch.Generator, patience: int | None = None
) -> list[Partition]:
    """Partitions with 0 to `most` new centres, each started from the one before."""
    partitions = [_settle(points, known, len(known), steps=0)]
    best = 0  # the partition that `bic` likes best so far
    while partitions[-1].num_new < most:
        last = partitions[-1]
        step = min(max(1, last.num_new // _STEP), most - last.num_new)
        distance = torch.cdist(points, last.centres_CR).amin(dim=1).square() + 1e-12
        trials = []
        for _ in range(_CANDIDATES):
            seeds = torch.multinomial(distance, step, replacement=step == 1, generator=rng)
            start = torch.cat([last.centres_CR, points[seeds]])
            trials.append(_settle(points, start, len(known), steps=2))
        nearest = min(trials, key=lambda trial: trial.distortion)
        partitions.append(_settle(points, nearest.centres_CR, len(known), _LLOYD_STEPS))
        if _bic_cost(partitions[-1]) < _bic_cost(partitions[best]):
            best = len(partitions) - 1
        if patience is not None and len(partitions) - 1 - best >= patience:
            break
    return partitions


def _settle(points: Tensor, centres: Tensor, num_known: int, steps: int) -> Partition:
    """Let the new centres settle beside the known ones, which do not move."""
    known, start = centres[:num_known], centres[num_known:]
    centres = torch.cat([known, kmeans_beside(points, known, start, steps)])
    labels = torch.cdist(points, centres).argmin(dim=1)
    distortion = float((points - centres[labels]).square().sum(dim=1).mean())
    return Partition(points, centres, num_known, labels, distortion)


def _count_joined(clusters: list[Tensor], gap: float) -> tuple[int, list[_Doubt]]:
    """Join the least parted two until every valley is as deep as `gap`; count what is left.

    Returns:
        The count, and how near to `gap` the valley that was crossed last came (but for it there
        would be one more), and the shallowest one that is left (one less).
    """
    depths = np.array(
        [[_depth(a, b) if a is not b else np.inf for b in clusters] for a in clusters]
    )
    doubts: list[_Doubt] = []
    while len(clusters) > 1 and depths.min() < gap:
        doubts = [_Doubt(float(depths.min()) / gap, len(clusters))]
        i, j = sorted(divmod(int(depths.argmin()), len(clusters)))
        clusters[i] = torch.cat([clusters[i], clusters[j]])
        del clusters[j]
        depths = np.delete(np.delete(depths, j, axis=0), j, axis=1)
        fresh = [_depth(clusters[i], b) if b is not clusters[i] else np.inf for b in clusters]
        depths[i, :], depths[:, i] = fresh, fresh
    if len(clusters) > 1:
        doubts.append(_Doubt(float(depths.min()) / gap, len(clusters) - 1))
    return len(clusters), doubts


def _depth(first_NR: Tensor, second_NR: Tensor) -> float:
    """Distance of two clusters on the line between them, in deviations on that line.

    The line is drawn through one half of the points and the other half is measured on it, cut in
    the middle, so that a chance direction of high variance does not pass for a valley.
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


def _halves(points_NR: Tensor) -> float:
    """Depth of the valley where 2-means cuts some points in two."""
    sides, _ = kmeans(points_NR, 2, torch.Generator().manual_seed(0), restarts=3)
    return _depth(points_NR[sides == 0], points_NR[sides == 1])
