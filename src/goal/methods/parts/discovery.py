"""Finding new classes among known ones: first ask what is novel, then let EM settle it.

Images far from every known mean are likely novel, but where "far" begins is not known. So several
splits are tried: mixtures of two, three, ... parts over the distance to the nearest known
mean, cut between any two parts. Each split's novel part is clustered, EM over all images refines
the clusters while known means stay fixed, and the split with the highest likelihood wins.
K-means cuts a huge class rather than find a small one, so one more start takes the farthest image
again and again.

All this is done on a sample of a large stage. What was found then says of any image how much it
belongs to each new class (`Found.shares`), a chunk at a time: no more than the sample is in memory.

Shapes: N images, K known classes, M new classes, d dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor

from goal.numerics.clustering import draw_seed, kmeans, kmeans_beside

SAMPLE = 20_000  # images that new classes are looked for in; chosen by a curve (decision 13)

_STEPS = 50
_CLEARLY = 0.1  # by how much log-likelihood per image
_RARE = 1e-6
_SETTLED = 1e-4  # deviations that no mean moves by any more
_CHUNK = 8192
_FEWEST = 4  # images that a class counts as having at least, when caution is shared out


@dataclass(frozen=True)
class Found:
    """New classes: their means, and how much images belong to each of them.

    Attributes:
        means_Md: Means of the new classes.
        shares_NM: How much each image of the stage belongs to each new class.
        likelihood: Log-likelihood of the sample if new classes come alike often.
        weighted: The same if each comes as often as it was found.
        known_Kd: Means of the known classes.
        novel: Share of the stage that is new.
        temperature: Softness of assignments.
    """

    means_Md: Tensor
    shares_NM: Tensor
    likelihood: float
    weighted: float
    known_Kd: Tensor
    novel: float
    temperature: float

    def shares(self, points_Nd: Tensor) -> Tensor:
        """How much any images belong to each new class, (N, M); the rest belongs to known ones."""
        parts = []
        for chunk in points_Nd.split(_CHUNK):
            known_N = _known_density(chunk, self.known_Kd, self.temperature)
            even_M = torch.full_like(self.means_Md[:, 0], self.novel / len(self.means_Md))
            parts.append(_expect(chunk, known_N, self.means_Md, even_M, self.temperature)[0])
        return torch.cat(parts) if parts else points_Nd.new_zeros(0, len(self.means_Md))


def discover(
    points_Nd: Tensor,
    known_Kd: Tensor,
    num_new: int,
    *,
    temperature: float,
    parts: int,
    restarts: int,
    rng: torch.Generator,
    sample: int = SAMPLE,
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
        sample: Images to look in; of a larger stage so many are drawn.
    """
    drawn = points_Nd
    if len(points_Nd) > sample:
        drawn = points_Nd[torch.randperm(len(points_Nd), generator=rng)[:sample].sort().values]
    found = [
        expect_and_maximise(drawn, known_Kd, start, temperature)
        for start in _starts(drawn, known_Kd, num_new, parts, restarts, rng)
    ]
    best = _likeliest(found, len(drawn))
    return best if drawn is points_Nd else replace(best, shares_NM=best.shares(points_Nd))


def _likeliest(found: list[Found], images: int) -> Found:
    """The likeliest fit if new classes come alike often, unless it is clear that they do not.

    Alike is the better guess where sizes differ by ten times, but beside a huge class it would pay
    to cut that one in two rather than to find a small one.
    """
    alike = max(found, key=lambda trial: trial.likelihood)
    weighted = max(found, key=lambda trial: trial.weighted)
    return weighted if weighted.weighted - alike.weighted > _CLEARLY * images else alike


def _starts(
    points_Nd: Tensor,
    known_Kd: Tensor,
    num_new: int,
    parts: int,
    restarts: int,
    rng: torch.Generator,
) -> Iterator[Tensor]:
    """Yield means to start from: clusters of each split's novel part, and the farthest images."""
    distance = _nearest(points_Nd, known_Kd)
    for novel in _splits(distance, num_new, parts, rng):
        clusters = min(num_new, int(novel.sum()))
        _, centres = kmeans(points_Nd[novel], clusters, rng, restarts=restarts)
        yield _filled(centres, points_Nd, num_new, rng)
    yield kmeans_beside(points_Nd, known_Kd, _farthest(points_Nd, distance, num_new))


def _farthest(points_Nd: Tensor, distance_N: Tensor, count: int) -> Tensor:
    """Images each of which is the farthest from all known means and from those before it."""
    chosen = []
    for _ in range(count):
        chosen.append(int(distance_N.argmax()))
        fresh = torch.cdist(points_Nd, points_Nd[chosen[-1:]])[:, 0]
        distance_N = torch.minimum(distance_N, fresh)
    return points_Nd[chosen]


def _nearest(points_Nd: Tensor, known_Kd: Tensor) -> Tensor:
    """Distance to the nearest known mean, (N,)."""
    return torch.cat([torch.cdist(part, known_Kd).amin(dim=1) for part in points_Nd.split(_CHUNK)])


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
    known_N = _known_density(points_Nd, known_Kd, temperature)  # never changes: once for all steps
    new, novel = start_Md, 0.5
    for _ in range(_STEPS):
        even_M = torch.full_like(new[:, 0], novel / len(new))
        shares, likelihood = _expect(points_Nd, known_N, new, even_M, temperature)
        weight = shares.sum(dim=0)
        before, novel = novel, float((weight.sum() / len(points_Nd)).clamp(_RARE, 1 - _RARE))
        moved = shares.T @ points_Nd / weight.clamp_min(1e-12)[:, None]
        moved = torch.where(weight[:, None] > 1e-3, moved, new)
        settled = max(float((moved - new).abs().max()), abs(novel - before)) < _SETTLED
        new = moved
        if settled:
            break
    own_M = (weight / weight.sum().clamp_min(1e-12) * novel).clamp_min(_RARE / len(points_Nd))
    weighted = _expect(points_Nd, known_N, new, own_M, temperature)[1]
    return Found(new, shares, likelihood, weighted, known_Kd, before, temperature)


def _known_density(points_Nd: Tensor, known_Kd: Tensor, temperature: float) -> Tensor:
    """Log of the mean density of the known classes, but for a constant, (N,)."""
    parts = [
        (-torch.cdist(part, known_Kd).square() / (2 * temperature)).logsumexp(dim=1)
        for part in points_Nd.split(_CHUNK)
    ]
    return torch.as_tensor(torch.cat(parts) - np.log(len(known_Kd)))


def _expect(
    points_Nd: Tensor, known_N: Tensor, new_Md: Tensor, prior_M: Tensor, temperature: float
) -> tuple[Tensor, float]:
    """How much each image belongs to each new class, and the log-likelihood of all."""
    rest = float((1 - prior_M.sum()).clamp_min(_RARE))
    joint_NM = prior_M.log() - torch.cdist(points_Nd, new_Md).square() / (2 * temperature)
    total_N = torch.logaddexp(known_N + np.log(rest), joint_NM.logsumexp(dim=1))
    return (joint_NM - total_N[:, None]).exp(), float(total_N.sum(dtype=torch.float64))


def wariness(images_M: Tensor, caution: float) -> Tensor:
    """Log-odds to hold against discovered classes, (M,): the more, the fewer images they have.

    A class of few images was learned from few guesses, known images among them, and draws more
    known images to itself than one of many.

    Args:
        images_M: How many images each was learned from, ``shares_NM.sum(dim=0)``.
        caution: Log-odds times images.
    """
    return torch.as_tensor(caution / images_M.clamp_min(_FEWEST))
