"""Neural collapse: how far features have come to lie on a simplex.

Letters after an underscore are shapes: N images, K classes present, D features.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from goal.common.arrays import FloatArray, IntArray
from goal.common.errors import GoalError
from goal.evaluation.metrics import checked_ids
from goal.numerics.clustering import class_means

_ROUNDING = 1e-24  # squared distances below this part of the squared size of features are zero


@dataclass(frozen=True)
class Collapse:
    """How far features have collapsed onto a simplex (Papyan et al. 2020, NC1 to NC4).

    Attributes:
        nc1: Trace of the within-class over trace of the between-class scatter; 0 if collapsed.
        nc2: Frobenius distance of the Gram matrix of centred unit class means from a simplex's,
            as a part of the latter's norm; 0 if the means are a simplex.
        nc3: Mean cosine of centred class means and centred classifier weights; 1 if aligned.
        nc3_vertices: The same with the prototypes; None if there are none.
        nc4: Share of images on which classifier and nearest class mean agree; 1 if always.
    """

    nc1: float
    nc2: float
    nc3: float
    nc3_vertices: float | None
    nc4: float


def collapse(
    features: npt.NDArray[np.floating[Any]],
    truth: IntArray,
    weights: npt.NDArray[np.floating[Any]],
    prototypes: npt.NDArray[np.floating[Any]] | None = None,
) -> Collapse | None:
    """Measure neural collapse in float64.

    Every class counts alike, whatever its number of images: the centre is the mean of the class
    means and the within-class scatter is averaged per class first. Classes without an image
    are left out everywhere, also as candidates of the classifier in NC4.

    Args:
        features: As the classifier gets them, shape (N, D).
        truth: Class of each feature, a row of `weights`, shape (N,).
        weights: Classifier; its scores are ``features @ weights.T``, shape (C, D).
        prototypes: Fixed vertices of the same classes, shape (C, D).

    Returns:
        The measures, or None where they mean nothing: fewer than two classes have images, or
        all class means coincide.
    """
    x_ND = np.asarray(features, dtype=np.float64)
    _check_collapse(x_ND, truth, weights, prototypes)
    classes, means_KD, member_N = present_means(x_ND, truth)
    within = _within(x_ND, means_KD, member_N)
    centred_KD = means_KD - means_KD.mean(axis=0)
    between = _mean_square(centred_KD)
    if len(classes) < 2 or between <= _ROUNDING * _mean_square(x_ND):
        return None
    weights_KD = weights[classes].astype(np.float64)
    nearest_N = (x_ND @ means_KD.T - np.square(means_KD).sum(axis=1) / 2).argmax(axis=1)
    return Collapse(
        nc1=within / between,
        nc2=_simplex_distance(unit_rows(centred_KD)),
        nc3=_alignment(centred_KD, weights_KD),
        nc3_vertices=None if prototypes is None else _alignment(centred_KD, prototypes[classes]),
        nc4=float(((x_ND @ weights_KD.T).argmax(axis=1) == nearest_N).mean()),
    )


def present_means(x_ND: FloatArray, classes_N: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
    """Classes that have rows, their means (K, D), and the position of each row among them."""
    classes, member_N = np.unique(classes_N, return_inverse=True)
    means = class_means(torch.from_numpy(x_ND), torch.from_numpy(member_N), len(classes))
    return classes, means.numpy(), member_N


def _within(x_ND: FloatArray, means_KD: FloatArray, member_N: IntArray) -> float:
    """Trace of the within-class scatter, every class counted alike."""
    squares_N = np.square(x_ND - means_KD[member_N]).sum(axis=1)
    return float((np.bincount(member_N, weights=squares_N) / np.bincount(member_N)).mean())


def _mean_square(rows: FloatArray) -> float:
    """Mean squared length of the rows: the trace of their scatter about the origin."""
    return float(np.square(rows).sum(axis=1).mean())


def _simplex_distance(unit_KD: FloatArray) -> float:
    """Relative Frobenius distance of ``unit @ unit.T`` from 1 on, -1/(K-1) off the diagonal."""
    k = len(unit_KD)
    ideal_KK = (k * np.eye(k) - 1.0) / (k - 1)
    return float(np.linalg.norm(unit_KD @ unit_KD.T - ideal_KK) / np.linalg.norm(ideal_KK))


def _alignment(centred_KD: FloatArray, vectors_KD: npt.NDArray[np.floating[Any]]) -> float:
    vectors_KD = vectors_KD.astype(np.float64)
    other_KD = unit_rows(vectors_KD - vectors_KD.mean(axis=0))
    return float((unit_rows(centred_KD) * other_KD).sum(axis=1).mean())


def unit_rows(rows_KD: FloatArray) -> FloatArray:
    """Rows scaled to length one; a zero row stays zero."""
    length_K1 = np.linalg.norm(rows_KD, axis=1, keepdims=True)
    return rows_KD / np.where(length_K1 > 0, length_K1, 1.0)


def _check_collapse(
    features: FloatArray,
    truth: IntArray,
    weights: npt.NDArray[np.floating[Any]],
    prototypes: npt.NDArray[np.floating[Any]] | None,
) -> None:
    if features.ndim != 2 or not np.isfinite(features).all():
        raise GoalError(f"Features of shape {features.shape}: need (N, D), all of them finite.")
    tables = {"weights": weights} | ({} if prototypes is None else {"prototypes": prototypes})
    checked_ids(truth, min(len(table) for table in tables.values()), "true")
    if len(truth) != len(features):
        raise GoalError(f"{len(features)} features but {len(truth)} true ids: give one for each.")
    for name, table in tables.items():
        if table.ndim != 2 or table.shape[1] != features.shape[1] or not np.isfinite(table).all():
            raise GoalError(
                f"The {name} have shape {table.shape}: need (classes, {features.shape[1]}), "
                "all of them finite."
            )
