"""Near-copies: images whose features are far closer than those of different images ever are.

How far apart different images are, is measured on images that a person labelled. A picture saved
again or resized lies within a small share of that; thirty of it are one image, not a class.

Shapes: N images, D features.
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from goal.common.arrays import FloatArray, IntArray

NEAR = 0.15  # squared distance of copies, over the median one of a nearest other image

_MEASURED = 2000  # images whose nearest other image is looked for
_AXES = 16  # directions along which candidates are found; their distance is checked in all


def usual_gap(features_ND: npt.NDArray[np.floating]) -> float:
    """Median squared distance of an image's feature from the nearest other one's.

    At most 2000 images are looked at, evenly chosen. Without two images it is 0.
    """
    step = -(-len(features_ND) // _MEASURED) or 1
    some = _unit(features_ND[::step])
    if len(some) < 2:
        return 0.0
    squared = 2 - 2 * some @ some.T
    np.fill_diagonal(squared, np.inf)
    return float(np.median(squared.min(axis=1)).clip(0))


def originals(features_ND: npt.NDArray[np.floating], gap: float) -> IntArray:
    """For each image the first one that it is a near-copy of, itself if there is none, (N,).

    Args:
        features_ND: Features of the images, compared by direction.
        gap: How far apart different images usually are, from `usual_gap`.
    """
    unit, within = _unit(features_ND), NEAR * gap
    first = np.full(len(unit), -1, dtype=np.int64)
    if not len(unit):
        return first
    tree = cKDTree(shadow := _projected(unit))
    for at in range(len(unit)):
        if first[at] >= 0:
            continue
        first[at] = at
        near = np.array(tree.query_ball_point(shadow[at], within**0.5 + 1e-9), dtype=np.int64)
        near = near[first[near] < 0]
        first[near[2 - 2 * unit[near] @ unit[at] <= within]] = at
    return first


def _projected(unit_ND: FloatArray) -> FloatArray:
    """Places along some orthonormal axes of large variance: distances there are no larger."""
    some = unit_ND[:: -(-len(unit_ND) // _MEASURED)]
    axes = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][:_AXES]
    return np.ascontiguousarray(unit_ND @ axes.T)


def _unit(features_ND: npt.NDArray[np.floating]) -> FloatArray:
    whole = np.asarray(features_ND, np.float64)
    return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True).clip(1e-12))
