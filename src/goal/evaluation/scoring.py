"""Scoring a method after a stage: the only place where its answers meet the truth."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from goal.backbone.tokens import TokenSource
from goal.common.arrays import IntArray
from goal.evaluation.collapse import collapse
from goal.evaluation.metrics import match, score_stage
from goal.methods.base import ConfidentSet, Method, Outputs, infer_all
from goal.protocol.stages import StageIds


@dataclass(frozen=True)
class Evaluation:
    """A stage's record for ``results.jsonl``, and what is behind it."""

    record: dict[str, Any]
    predictions: IntArray
    owner: IntArray  # true class that the matching gives each predicted one, -1 for none
    outputs: Outputs


def evaluate(
    method: Method, tokens: TokenSource, truth: IntArray, stage: StageIds, num_base: int
) -> Evaluation:
    """Predict the test images of a stage and score them.

    Args:
        method: The method, as it is after the stage.
        tokens: Tokens of the stage's test images.
        truth: Their classes, as positions in the class order.
        stage: The stage.
        num_base: Number of base classes.
    """
    outputs = infer_all(method, tokens)
    predictions = method.predict(outputs).cpu().numpy()
    owner = match(predictions, truth, method.num_classes, stage.num_seen)
    score = score_stage(stage.index, predictions, truth, owner, num_base, stage.num_known)
    record = asdict(score) | {"num_known": stage.num_known, "num_new": stage.num_new}
    record |= {"num_train": len(stage.train_ids)}
    record |= _by_centroid(method, outputs, truth, stage)
    complete = method.num_classes == stage.num_seen
    # Row i of the reordered weights belongs to true class i, if every class found its match.
    order = np.argsort(owner) if complete else None
    record |= _geometry(method, outputs, predictions, truth, order)
    return Evaluation(record, predictions, owner, outputs)


def _by_centroid(
    method: Method, outputs: Outputs, truth: IntArray, stage: StageIds
) -> dict[str, float]:
    """Accuracy by the nearest class centroid, for methods that predict by clustering.

    At stage 0 these are the means of the labelled classes: how much the rule alone is worth.
    """
    if outputs.scores is not None:
        return {}
    scores = method.class_scores(outputs)
    if scores.shape[1] != method.num_classes:
        return {}  # in the midst of a stage, whose classes have no centroids yet
    nearest = scores.argmax(dim=1).cpu().numpy()
    owner = match(nearest, truth, method.num_classes, stage.num_seen)
    return {"by_centroid": 100 * float((owner[nearest] == truth).mean())}


def _geometry(
    method: Method,
    outputs: Outputs,
    predictions: IntArray,
    truth: IntArray,
    order: IntArray | None,
) -> dict[str, float | None]:
    """Neural-collapse measures, and how close embeddings are to the vertices of their classes."""
    weights, directions = method.weights(), method.directions()
    result: dict[str, float | None] = {}
    if weights is not None and order is not None:
        found = collapse(_numpy(outputs.features), truth, _numpy(weights)[order])
        if found is not None:
            result |= {key: value for key, value in asdict(found).items() if value is not None}
    if directions is not None and outputs.embeddings is not None:
        if order is not None:
            found = collapse(_numpy(outputs.embeddings), truth, _numpy(directions)[order])
            result |= {} if found is None else {"nc3_vertices": found.nc3}
        chosen = directions[torch.from_numpy(predictions).to(directions.device)]
        result["vertex_alignment"] = float((outputs.embeddings * chosen).sum(dim=1).mean())
    return result


def judge_confident_set(
    confident: ConfidentSet | None, truth: IntArray, num_known: int, truly_known: int
) -> dict[str, float | int]:
    """Compare the samples a method trusted to be new with the truth it cannot see.

    Args:
        confident: What the method trusted.
        truth: Classes of the stage's images.
        num_known: Classes the method knew before the stage.
        truly_known: Classes there were before the stage; the same unless they are estimated.

    Returns:
        ``confident_size``; ``confident_novel``, the percentage of them that is truly new; and
        ``confident_purity``, the percentage that has the commonest class of its cluster.
    """
    if confident is None:
        return {}
    classes = confident.classes.cpu().numpy()
    new = classes >= num_known
    classes, real = classes[new], truth[confident.positions.cpu().numpy()[new]]
    if not len(real):
        return {"confident_size": 0}
    agreeing = sum(np.bincount(real[classes == label]).max() for label in np.unique(classes))
    return {
        "confident_size": len(real),
        "confident_novel": 100 * float((real >= truly_known).mean()),
        "confident_purity": 100 * float(agreeing) / len(real),
    }


def _numpy(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    return tensor.detach().cpu().numpy().astype(np.float32)
