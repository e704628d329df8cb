"""Cutting a class into parts: which of its images each part starts from.

Shapes: N images, d directions.
"""

import numpy as np
import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from goal.common.arrays import IntArray
from goal.common.seeding import stream
from goal.methods.parts.discovery import SAMPLE
from goal.numerics.clustering import kmeans

LEAST = 2  # images of a part

_MOST = 6  # parts that are tried
_SEEDS = 8  # images that a part starts from: those nearest to its mean
_SCORED = 2000
_RESTARTS = 10


def parts_of(points_Nd: Tensor, count: int | None, seed: int) -> list[IntArray]:
    """Images that each part starts from, by position; the part with the most images first.

    Args:
        points_Nd: Images of the class, where new classes are looked for.
        count: How many parts; None for as many as are best apart.
        seed: Seed; the same one gives the same parts.
    """
    some = points_Nd[:SAMPLE]
    if count is None:
        most = min(_MOST, len(some) // LEAST)
        cuts = {parts: _cut(some, parts, seed) for parts in range(2, most + 1)}
        count = max(cuts, key=lambda parts: _apart(some, cuts[parts][0]))
    labels, centres = _cut(some, count, seed)
    sizes = torch.bincount(labels, minlength=count)
    order = sizes.argsort(descending=True, stable=True)
    return [_nearest(some, labels, centres, int(part)) for part in order if sizes[part]]


def _cut(points_Nd: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    return kmeans(points_Nd, count, stream(seed, "split", count), restarts=_RESTARTS)


def _apart(points_Nd: Tensor, labels_N: Tensor) -> float:
    """How far apart the parts are (mean silhouette)."""
    labels = labels_N[:_SCORED].numpy()
    if not 2 <= len(np.unique(labels)) < len(labels):
        return -1.0
    return float(silhouette_score(points_Nd[:_SCORED].numpy(), labels))


def _nearest(points_Nd: Tensor, labels_N: Tensor, centres: Tensor, part: int) -> IntArray:
    members = (labels_N == part).nonzero()[:, 0]
    away = (points_Nd[members] - centres[part]).square().sum(dim=1)
    return members[away.argsort(stable=True)[:_SEEDS]].numpy().astype(np.int64)
