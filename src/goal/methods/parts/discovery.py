"""Finding new classes among known ones: first ask what is novel, then let EM settle it.

Images far from every known mean are likely novel, but where "far" begins is not known. So several
splits are tried: mixtures of two, three, ... parts over the distance to the nearest known
mean, cut between any two parts. Each split's novel part is clustered, EM over all images refines
the clusters while known means stay fixed, and the split with the highest likelihood wins.

Shapes: N images, K known classes, M new classes, d dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor

from goal.numerics.clustering import draw_seed, kmeans

_STEPS = 50
_RARE = 1e-6


@dataclass(frozen=True)
class Found:
    """New classes: their means, and how much each image belongs to each of them."""

    means_Md: Tensor
    shares_NM: Tensor
    likelihood: float


def discover(
    points_Nd: Tensor,
    known_Kd: Tensor,
    num_new: int,
    *,
    temperature: float,
    parts: int,
    restarts: int,
    rng: torch.Generator,
) -> Found:
    """Find `num_new` classes in whitened points.

    Args:
        points_Nd: Images of the stage.
        known_Kd: Means of the known classes; they stay where they are.
        num_new: Classes to find.
        temperature: Softens EM's assignments; 1 is the plain Gaussian mixture.
        parts: Largest number of parts in the mixtures over distances.
        restarts: Starts of k-means per split.
        rng: Source of all randomness.
    """
    distance = torch.cdist(points_Nd, known_Kd).amin(dim=1)
    best: Found | None = None
    for novel in _splits(distance, num_new, parts, rng):
        clusters = min(num_new, int(novel.sum()))
        _, centres = kmeans(points_Nd[novel], clusters, rng, restarts=restarts)
        start = _filled(centres, points_Nd, num_new, rng)
        found = expect_and_maximise(points_Nd, known_Kd, start, temperature)
        if best is None or found.likelihood > best.likelihood:
            best = found
    assert best is not None
    return best


def _splits(distance_N: Tensor, least: int, parts: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield masks of novel images; if no mixture offers enough of them, the farthest ones."""
    seen: set[bytes] = set()
    values = distance_N.double().cpu().numpy()
    for count in range(2, parts + 1):
        if len(np.unique(values)) < 2 * count:
            break
        with threadpool_limits(limits=1):
            model = GaussianMixture(count, n_init=3, random_state=draw_seed(rng))
            part = model.fit_predict(values[:, None])
        order = np.argsort(model.means_[:, 0])
        for lower, _ in pairwise(range(count)):
            novel = np.isin(part, order[lower + 1 :])
            if novel.sum() >= least and novel.tobytes() not in seen:
                seen.add(novel.tobytes())
                yield torch.from_numpy(novel).to(distance_N.device)
    if not seen:
        farthest = torch.zeros_like(distance_N, dtype=torch.bool)
        farthest[distance_N.argsort(descending=True, stable=True)[:least]] = True
        yield farthest


def _filled(centres_Cd: Tensor, points_Nd: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Top up with random points when a stage has fewer images than new classes."""
    missing = count - len(centres_Cd)
    noise = torch.randn(missing, points_Nd.shape[1], generator=rng).to(points_Nd)
    return torch.cat([centres_Cd, points_Nd.mean(dim=0) + noise])


def expect_and_maximise(
    points_Nd: Tensor, known_Kd: Tensor, start_Md: Tensor, temperature: float
) -> Found:
    """Fit round Gaussians to all points; known means are fixed, new ones move.

    Known classes share one prior evenly, and so do new ones; the split between them is learned.
    """
    known, new, share = len(known_Kd), start_Md, 0.5
    for _ in range(_STEPS):
        means = torch.cat([known_Kd, new])
        joint = -torch.cdist(points_Nd, means).square() / (2 * temperature)
        joint[:, :known] += np.log((1 - share) / known)
        joint[:, known:] += np.log(share / len(new))
        likelihood = joint.logsumexp(dim=1)
        shares = (joint[:, known:] - likelihood[:, None]).exp()
        share = float((shares.sum() / len(points_Nd)).clamp(_RARE, 1 - _RARE))
        weight = shares.sum(dim=0)
        moved = shares.T @ points_Nd / weight.clamp_min(1e-12)[:, None]
        moved = torch.where(weight[:, None] > 1e-3, moved, new)
        settled = bool((moved - new).abs().max() < 1e-6)
        new = moved
        if settled:
            break
    return Found(new, shares, float(likelihood.sum()))
