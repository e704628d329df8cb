"""What a stage looked like: arrays and thumbnails for the report, written beside its predictions.

Letters after an underscore are shapes: N test images, M of them on the map, K predicted and C true
classes, D features.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from goal.common.arrays import FloatArray, IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.images import Images
from goal.evaluation.chosen import choose, evenly
from goal.evaluation.collapse import present_means, unit_rows
from goal.evaluation.scoring import Evaluation
from goal.methods.base import Method, Outputs
from goal.numerics.clustering import class_means
from goal.pages.galleries import thumbnail
from goal.storage import files

MAP_IMAGES = 1500
COSINE_CLASSES = 300

Array = npt.NDArray[Any]


def snapshot(method: Method, found: Evaluation, truth: IntArray) -> dict[str, Array]:
    """Describe a stage in arrays; ``docs/results.md`` has their meaning."""
    outputs, predictions = found.outputs, found.predictions
    features_ND = _double(outputs.features)
    arrays: dict[str, Array] = {
        "owner": found.owner,
        "confidence": confidence(outputs, predictions, method.num_classes).astype(np.float32),
    }
    by_class = np.argsort(truth, kind="stable")
    chosen_M = np.sort(evenly(by_class, MAP_IMAGES))
    arrays["map_images"] = chosen_M
    classes = evenly(np.unique(truth), COSINE_CLASSES)
    arrays["cosine_classes"] = classes
    nothing = np.empty((0, features_ND.shape[1]))
    points, _, explained = project(features_ND[chosen_M], nothing)
    arrays |= {"map_features": points, "map_features_explained": explained}
    arrays["cosines_features"] = mean_cosines(features_ND, truth, classes)
    directions = method.directions()
    if directions is not None and outputs.embeddings is not None:
        embeddings_NE = _double(outputs.embeddings)
        points, vertices, explained = project(embeddings_NE[chosen_M], _double(directions))
        arrays |= {"map_embeddings": points, "map_embeddings_explained": explained}
        arrays["map_vertices"] = vertices
        arrays["cosines_embeddings"] = mean_cosines(embeddings_NE, truth, classes)
    return arrays


def confidence(outputs: Outputs, predictions: IntArray, num_classes: int) -> FloatArray:
    """Score of the predicted class less the best other one, in the method's units, (N,).

    For methods that cluster and score nothing, scores are cosines with the clusters' means.
    """
    if outputs.scores is not None:
        scores_NK = _double(outputs.scores)
    else:
        features_ND = _double(outputs.features)
        points, labels = torch.from_numpy(features_ND), torch.from_numpy(predictions)
        means_KD = class_means(points, labels, num_classes).numpy()
        scores_NK = features_ND @ unit_rows(means_KD).T
    rows = np.arange(len(predictions))
    own_N = scores_NK[rows, predictions]
    if scores_NK.shape[1] == 1:
        return own_N
    scores_NK = scores_NK.copy()
    scores_NK[rows, predictions] = -np.inf
    return np.asarray(own_N - scores_NK.max(axis=1))


def project(points_MD: FloatArray, others_KD: FloatArray) -> tuple[Array, Array, Array]:
    """Project onto the two directions in which `points_MD` vary most.

    Returns:
        The points, the others in the same plane, both float32 with two columns, and the share of
        the points' variance that the plane holds, shape ().
    """
    centre_D = points_MD.mean(axis=0)
    centred_MD = points_MD - centre_D
    variances, axes = np.linalg.eigh(centred_MD.T @ centred_MD)
    plane_D2 = axes[:, ::-1][:, :2]
    # An axis has two directions: take the one in which its largest part is positive.
    largest = np.abs(plane_D2).argmax(axis=0)
    plane_D2 = plane_D2 * np.sign(plane_D2[largest, np.arange(plane_D2.shape[1])])
    total = variances.clip(min=0).sum()
    explained = variances[::-1][:2].clip(min=0).sum() / total if total > 0 else 0.0
    flat = [((rows - centre_D) @ plane_D2).astype(np.float32) for rows in (points_MD, others_KD)]
    return flat[0], flat[1], np.asarray(explained, dtype=np.float32)


def mean_cosines(rows_ND: FloatArray, truth: IntArray, classes: IntArray) -> Array:
    """Cosines between class means about the mean of all class means, (C, C) float32."""
    means_CD = present_means(rows_ND, truth)[1]
    unit_CD = unit_rows(means_CD - means_CD.mean(axis=0))
    unit_CD = unit_CD[np.searchsorted(np.unique(truth), classes)]
    return np.asarray(unit_CD @ unit_CD.T, dtype=np.float32)


def write_thumbnails(
    path: Path, images: Images, test_ids: IntArray, chosen: Sequence[int], reporter: Reporter
) -> None:
    """Write a zip of ``<test id>.webp``; an image that cannot be read is named and left out."""
    with files.replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for index in sorted({int(test_ids[position]) for position in chosen}):
            try:
                content = thumbnail(images.image(index))
            except GoalError as error:
                reporter.warn(f"A thumbnail is left out of the report. {error}")
                continue
            archive.writestr(zipfile.ZipInfo(f"{index}.webp"), content)


def gallery_images(arrays: dict[str, Array], num_base: int) -> list[int]:
    """Positions of all test images that the stage's galleries show."""
    choices = choose(
        arrays["predictions"], arrays["truth"], arrays["owner"], arrays["confidence"], num_base
    )
    shown = [np.concatenate([c.most, c.least, c.mistaken]) for c in choices]
    return np.unique(np.concatenate(shown)).tolist() if shown else []


def _double(tensor: torch.Tensor) -> FloatArray:
    return tensor.detach().cpu().numpy().astype(np.float64)
