"""Clustering and matching: k-means, the Hungarian assignment, and a two-part split of scores."""

from fractions import Fraction

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor


def draw_seed(rng: torch.Generator) -> int:
    """Draw a seed for libraries that do not take a torch generator."""
    return int(torch.randint(2**31 - 1, (), generator=rng))


def kmeans(
    points_ND: Tensor,
    clusters: int,
    rng: torch.Generator,
    start: Tensor | None = None,
    restarts: int = 10,
) -> tuple[Tensor, Tensor]:
    """Cluster by Lloyd's algorithm (scikit-learn).

    Args:
        points_ND: Points, (N, D); at least `clusters` of them.
        clusters: Number of clusters.
        rng: Source of the k-means++ starts.
        start: First centres, (clusters, D); then there is a single run and no randomness.
        restarts: Number of k-means++ starts, the best of which is kept.

    Returns:
        Cluster of each point, (N,), and centres, (clusters, D).
    """
    points = points_ND.detach().cpu().double().numpy()
    model = KMeans(
        n_clusters=clusters,
        init="k-means++" if start is None else start.detach().cpu().double().numpy(),
        n_init=restarts if start is None else 1,
        random_state=draw_seed(rng),
    )
    with threadpool_limits(limits=1):
        labels = model.fit_predict(points)
    centres = torch.from_numpy(model.cluster_centers_)
    return (
        torch.from_numpy(labels.astype(np.int64)).to(points_ND.device),
        centres.to(points_ND.device, points_ND.dtype),
    )


def kmeans_beside(
    points_ND: Tensor, fixed_KD: Tensor, start_MD: Tensor, rounds: int = 100
) -> Tensor:
    """Find centres beside fixed ones: Lloyd's algorithm in which only the new centres move.

    A new centre that loses all its points stays where it is.

    Args:
        points_ND: Points, (N, D).
        fixed_KD: Centres that stay, (K, D).
        start_MD: Where the new centres start, (M, D).
        rounds: Rounds, at most; it ends when no point changes its centre.

    Returns:
        The new centres, (M, D).
    """
    moving, before = start_MD, None
    for _ in range(rounds):
        nearest = torch.cdist(points_ND, torch.cat([fixed_KD, moving])).argmin(dim=1)
        if before is not None and torch.equal(nearest, before):
            break
        before, mine = nearest, nearest >= len(fixed_KD)
        labels = nearest[mine] - len(fixed_KD)
        found = torch.bincount(labels, minlength=len(moving)) > 0
        means = class_means(points_ND[mine], labels, len(moving))
        moving = torch.where(found[:, None], means, moving)
    return moving


def drifted(
    centres_KD: Tensor, before_ND: Tensor, after_ND: Tensor, temperature: float = 0.1
) -> Tensor:
    """Move centres along with the points around them (semantic drift, Yu et al., CVPR 2020).

    Each centre moves by the mean displacement of unit points, weighted by a softmax over points of
    their cosine with it.
    """
    if not len(before_ND):
        return centres_KD
    near_KN = (centres_KD @ before_ND.T / temperature).softmax(dim=1)
    return centres_KD + near_KN @ (after_ND - before_ND)


def assign(similarity_RC: Tensor) -> Tensor:
    """Give each row its own column so that the total similarity is largest (Hungarian)."""
    rows, columns = linear_sum_assignment(similarity_RC.detach().cpu().numpy(), maximize=True)
    result = torch.full((len(similarity_RC),), -1)
    result[torch.from_numpy(rows)] = torch.from_numpy(columns)
    return result.to(similarity_RC.device)


def assign_greedily(similarity_RC: Tensor) -> Tensor:
    """Give each row its own column by taking the largest remaining similarity again and again."""
    remaining = similarity_RC.detach().cpu().double().clone()
    result = torch.full((len(remaining),), -1)
    for _ in range(min(remaining.shape)):
        row, column = divmod(int(remaining.argmax()), remaining.shape[1])
        result[row] = column
        remaining[row, :] = -torch.inf
        remaining[:, column] = -torch.inf
    return result.to(similarity_RC.device)


def overlap(first_N: Tensor, second_N: Tensor, size: int) -> Tensor:
    """Count how often value i of the first meets value j of the second, (size, size)."""
    table = torch.zeros(size, size, dtype=torch.int64, device=first_N.device)
    table.index_put_((first_N, second_N), torch.ones_like(first_N), accumulate=True)
    return table


def split_high(scores_N: Tensor, rng: torch.Generator) -> Tensor:
    """Split scores by a two-component one-dimensional Gaussian mixture.

    Returns:
        True for the points of the component with the larger mean, (N,). All True when there are
        fewer than two distinct scores.
    """
    values = scores_N.detach().cpu().double().numpy()[:, None]
    if len(np.unique(values)) < 2:
        return torch.ones(len(values), dtype=torch.bool, device=scores_N.device)
    with threadpool_limits(limits=1):
        model = GaussianMixture(2, n_init=3, random_state=draw_seed(rng)).fit(values)
        component = model.predict(values)
    high = component == int(np.argmax(model.means_[:, 0]))
    return torch.from_numpy(high).to(scores_N.device)


def class_means(points_ND: Tensor, classes_N: Tensor, count: int) -> Tensor:
    """Mean point of each class, (count, D); zero for a class without points."""
    sums = torch.zeros(count, points_ND.shape[1], dtype=points_ND.dtype, device=points_ND.device)
    sums.index_add_(0, classes_N, points_ND)
    return sums / torch.bincount(classes_N, minlength=count).clamp_min(1)[:, None]


def part_of(share: float, count: int) -> int:
    """Return the share of a count, rounded down but exact: 0.7 of 90 is 63, not 62."""
    return int(Fraction(str(share)) * count)


def lowest_per_class(candidates: Tensor, classes: Tensor, values: Tensor, share: float) -> Tensor:
    """Of the candidates of each class, the given share with the lowest values (at least one)."""
    chosen = []
    for label in classes[candidates].unique().tolist():
        members = candidates[classes[candidates] == label]
        order = values[members].argsort(stable=True)
        chosen.append(members[order[: max(1, part_of(share, len(members)))]])
    return torch.cat(chosen) if chosen else candidates
