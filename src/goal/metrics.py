"""Scores of a stage, summaries of a run, and neural-collapse diagnostics.

Class ids are positions in the class order: the base classes come first, then each stage's new
classes. "Old" and "new" mean two different things in the literature, so neither word is used:

- base / novel: the labelled classes of stage 0 / everything discovered since;
- seen / unseen: every class known before this stage / the classes of this stage alone.

Accuracies, NMI and ARI are in percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from goal.errors import GoalError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

UNMATCHED = -1
_ROUNDING = 1e-24  # squared distances below this part of the squared size of features are zero
_MEASURES = ("all", "base", "novel", "seen", "unseen", "nmi", "ari", "base_identity")


@dataclass(frozen=True)
class StageScore:
    """What one stage scored on the test images of all classes seen so far.

    Attributes:
        stage: The stage's index.
        all: Accuracy over all test images, after matching.
        base: The same over images of base classes.
        novel: The same over images of classes discovered since stage 0; None at stage 0.
        seen: The same over images of classes known before this stage. Stage 0 has none such;
            there it equals `base`, the starting point that forgetting is measured from.
        unseen: The same over images of this stage's new classes; None at stage 0.
        base_identity: Accuracy on base classes without matching: predicted id equals true id.
        nmi: Normalised mutual information of predictions and truth.
        ari: Adjusted Rand index of predictions and truth.
        num_test: Test images.
    """

    stage: int
    all: float
    base: float
    novel: float | None
    seen: float
    unseen: float | None
    base_identity: float
    nmi: float
    ari: float
    num_test: int


def match(predictions: IntArray, truth: IntArray, num_predicted: int, num_true: int) -> IntArray:
    """Pair predicted ids with true ids so that as many images as possible agree.

    One Hungarian assignment on the whole confusion matrix, which need not be square: with an
    estimated number of classes some ids stay without a partner.

    Args:
        predictions: Predicted id of each image, in 0..num_predicted-1, shape (N,).
        truth: True id of each image, in 0..num_true-1, shape (N,).
        num_predicted: Number of predicted ids.
        num_true: Number of true ids.

    Returns:
        True id for every predicted id, -1 for those unmatched, shape (num_predicted,).
    """
    predictions = _checked_ids(predictions, num_predicted, "predicted")
    truth = _checked_ids(truth, num_true, "true")
    if len(predictions) != len(truth):
        raise GoalError(
            f"{len(predictions)} predictions for {len(truth)} true ids: give one for each image."
        )
    cells = np.bincount(predictions * num_true + truth, minlength=num_predicted * num_true)
    rows, columns = linear_sum_assignment(cells.reshape(num_predicted, num_true), maximize=True)
    mapping = np.full(num_predicted, UNMATCHED, dtype=np.int64)
    mapping[rows] = columns
    return mapping


def score_stage(
    stage_index: int,
    predictions: IntArray,
    truth: IntArray,
    num_base: int,
    num_known: int,
    num_seen: int,
    num_predicted: int,
) -> StageScore:
    """Score one stage's predictions on its whole test set with a single matching.

    Args:
        stage_index: 0 for the labelled stage.
        predictions: Predicted id of each test image, shape (N,).
        truth: True class, as a position in the class order, shape (N,).
        num_base: Base classes.
        num_known: Classes known before the stage (not looked at for stage 0).
        num_seen: Classes known after it.
        num_predicted: Ids the predictions may take; differs from `num_seen` if estimated.
    """
    predictions, truth = np.asarray(predictions), np.asarray(truth)
    mapping = match(predictions, truth, num_predicted, num_seen)
    correct = mapping[predictions] == truth
    is_base, is_seen = truth < num_base, truth < num_known
    base = _percent(correct, is_base, "base")
    later = stage_index > 0
    return StageScore(
        stage=stage_index,
        all=100.0 * float(correct.mean()),
        base=base,
        novel=_percent(correct, ~is_base, "novel") if later else None,
        seen=_percent(correct, is_seen, "previously known") if later else base,
        unseen=_percent(correct, ~is_seen, "new") if later else None,
        base_identity=_percent(predictions == truth, is_base, "base"),
        nmi=100.0 * float(normalized_mutual_info_score(truth, predictions)),
        ari=100.0 * float(adjusted_rand_score(truth, predictions)),
        num_test=len(truth),
    )


def summarise(scores: Sequence[StageScore]) -> dict[str, Any]:
    """Condense a run, stage 0 first, into the figures that papers print.

    Keys of the result:

    - ``stage0_all``: accuracy after stage 0.
    - ``average``: for each of all, base, novel, seen, unseen, nmi, ari and base_identity the
      mean over the stages from 1 on; None for each when there is only stage 0.
    - ``final``: the same measures at the last stage.
    - ``forgetting``: points lost, by five definitions, named after who uses them. ``gm``: the
      largest loss of seen accuracy against stage 0 at any later stage. ``happy``: the largest
      loss of base accuracy. ``vb_cgcd``: the loss of base accuracy at the last stage.
      ``goal_own`` (GOAL's own rows): ``stage0_all`` minus the last base accuracy.
      ``goal_rivals`` (how GOAL prints its rivals): ``stage0_all`` minus the last seen accuracy.
    - ``discovery``: accuracy on what was discovered, under the same names. ``gm``: unseen at
      the last stage. ``happy``, ``vb_cgcd`` and ``goal_rivals``: mean of unseen.
      ``goal_own``: mean of novel.

    Forgetting and discovery are None throughout when there is only stage 0.
    """
    if [score.stage for score in scores] != list(range(len(scores))) or not scores:
        given = [score.stage for score in scores]
        raise GoalError(f"Scores are of stages {given}; give those of stages 0, 1, ... in order.")
    first, later = scores[0], scores[1:]
    average = {name: _mean([getattr(score, name) for score in later]) for name in _MEASURES}
    return {
        "stage0_all": first.all,
        "average": average,
        "final": {name: getattr(scores[-1], name) for name in _MEASURES},
        "forgetting": _forgetting(first, later),
        "discovery": {
            "gm": later[-1].unseen if later else None,
            "happy": average["unseen"],
            "vb_cgcd": average["unseen"],
            "goal_own": average["novel"],
            "goal_rivals": average["unseen"],
        },
    }


def _forgetting(first: StageScore, later: Sequence[StageScore]) -> dict[str, float | None]:
    if not later:
        return dict.fromkeys(("gm", "happy", "vb_cgcd", "goal_own", "goal_rivals"))
    last = later[-1]
    return {
        "gm": max(first.seen - score.seen for score in later),
        "happy": max(first.base - score.base for score in later),
        "vb_cgcd": first.base - last.base,
        "goal_own": first.all - last.base,
        "goal_rivals": first.all - last.seen,
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _percent(correct: BoolArray, chosen: BoolArray, kind: str) -> float:
    if not chosen.any():
        raise GoalError(
            f"No test image belongs to the {kind} classes, so their accuracy is undefined. "
            "Add test images, or check the class counts given."
        )
    return 100.0 * float(correct[chosen].mean())


def _checked_ids(ids: IntArray, count: int, kind: str) -> IntArray:
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise GoalError(
            f"The {kind} ids are {ids.dtype} of shape {ids.shape}; give one integer per image."
        )
    if ids.min() < 0 or ids.max() >= count:
        raise GoalError(
            f"The {kind} ids run from {ids.min()} to {ids.max()}, but must lie in 0..{count - 1}."
        )
    return ids.astype(np.int64)


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


# Letters after an underscore are shapes: N images, K classes present, D features.


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
    classes, means_KD, within = _class_means(x_ND, truth)
    centred_KD = means_KD - means_KD.mean(axis=0)
    between = _mean_square(centred_KD)
    if len(classes) < 2 or between <= _ROUNDING * _mean_square(x_ND):
        return None
    weights_KD = weights[classes].astype(np.float64)
    nearest_N = (x_ND @ means_KD.T - np.square(means_KD).sum(axis=1) / 2).argmax(axis=1)
    return Collapse(
        nc1=within / between,
        nc2=_simplex_distance(_unit(centred_KD)),
        nc3=_alignment(centred_KD, weights_KD),
        nc3_vertices=None if prototypes is None else _alignment(centred_KD, prototypes[classes]),
        nc4=float(((x_ND @ weights_KD.T).argmax(axis=1) == nearest_N).mean()),
    )


def _class_means(x_ND: FloatArray, truth: IntArray) -> tuple[IntArray, FloatArray, float]:
    """Classes present, their means (K, D), and the trace of the within-class scatter."""
    classes, member_N, counts_K = np.unique(truth, return_inverse=True, return_counts=True)
    starts_K = np.cumsum(counts_K) - counts_K
    means_KD = np.add.reduceat(x_ND[np.argsort(member_N)], starts_K, axis=0) / counts_K[:, None]
    squares_N = np.square(x_ND - means_KD[member_N]).sum(axis=1)
    per_class_K = np.bincount(member_N, weights=squares_N) / counts_K
    return classes, means_KD, float(per_class_K.mean())


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
    other_KD = _unit(vectors_KD - vectors_KD.mean(axis=0))
    return float((_unit(centred_KD) * other_KD).sum(axis=1).mean())


def _unit(rows_KD: FloatArray) -> FloatArray:
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
    _checked_ids(truth, min(len(table) for table in tables.values()), "true")
    if len(truth) != len(features):
        raise GoalError(f"{len(features)} features but {len(truth)} true ids: give one for each.")
    for name, table in tables.items():
        if table.ndim != 2 or table.shape[1] != features.shape[1] or not np.isfinite(table).all():
            raise GoalError(
                f"The {name} have shape {table.shape}: need (classes, {features.shape[1]}), "
                "all of them finite."
            )
