"""Scores of a stage, and summaries of a run.

Class ids are positions in the class order: the base classes come first, then each stage's new
classes. "Old" and "new" mean two different things in the literature, so neither word is used:

- base / novel: the labelled classes of stage 0 / everything discovered since;
- seen / unseen: every class known before this stage / the classes of this stage alone.

Accuracies, NMI and ARI are in percent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from goal.common.arrays import BoolArray, IntArray
from goal.common.errors import GoalError

UNMATCHED = -1
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
    predictions = checked_ids(predictions, num_predicted, "predicted")
    truth = checked_ids(truth, num_true, "true")
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
    owner: IntArray,
    num_base: int,
    num_known: int,
) -> StageScore:
    """Score one stage's predictions on its whole test set with a single matching.

    Args:
        stage_index: 0 for the labelled stage.
        predictions: Predicted id of each test image, shape (N,).
        truth: True class, as a position in the class order, shape (N,).
        owner: What `match` found for them.
        num_base: Base classes.
        num_known: Classes known before the stage (not looked at for stage 0).
    """
    predictions, truth = np.asarray(predictions), np.asarray(truth)
    correct = owner[predictions] == truth
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


def checked_ids(ids: IntArray, count: int, kind: str) -> IntArray:
    """Ids as 64-bit integers, or an error that says which are out of range."""
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


def last_accuracies(record: Mapping[str, Any]) -> str:
    """A stage's accuracies on one line."""
    keys = [key for key in ("all", "base", "novel", "unseen") if record.get(key) is not None]
    figures = ", ".join(f"{key.capitalize()} {record[key]:.1f}" for key in keys)
    return f"after stage {record['stage']}: {figures}"
