"""Measures of neural collapse equal an exact simplex, a hand count and slow loops."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from goal.common.arrays import FloatArray, IntArray
from goal.common.errors import GoalError
from goal.evaluation.collapse import Collapse, collapse
from tests.evaluation.helpers import ids


def simplex(classes: int, dimensions: int) -> FloatArray:
    """Unit vectors at equal angles, as in equation 1 of the GOAL paper."""
    rng = np.random.default_rng(classes)
    basis, _ = np.linalg.qr(rng.standard_normal((dimensions, classes)))
    centring = np.eye(classes) - np.ones((classes, classes)) / classes
    vertices: FloatArray = math.sqrt(classes / (classes - 1)) * (basis @ centring).T
    return vertices


@pytest.mark.parametrize("present", [range(7), [0, 2, 5], [3, 6]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_collapse_of_an_exact_simplex(present: list[int], dtype: type[np.floating[Any]]) -> None:
    """Classes of unequal size, and only some of them: still a simplex about its own centre."""
    vertices = simplex(7, 12)
    truth = np.repeat(np.array(present), [3 + label for label in present])
    features = (3.0 * vertices[truth]).astype(dtype)
    found = collapse(features, truth, 0.5 * vertices, vertices)
    assert found is not None
    wanted = Collapse(nc1=0.0, nc2=0.0, nc3=1.0, nc3_vertices=1.0, nc4=1.0)
    assert asdict(found) == pytest.approx(asdict(wanted), abs=1e-6)


def test_collapse_by_hand() -> None:
    """Three classes on a line, means -1, 0 and 1, each with images a quarter to either side."""
    features = np.array([[-1.25], [-0.75], [-0.25], [0.25], [0.75], [1.25]])
    found = collapse(features, ids("0 0 1 1 2 2"), np.array([[-1.0], [0.0], [1.0]]))
    assert found is not None and found.nc3_vertices is None
    assert found.nc1 == pytest.approx(0.0625 / (2 / 3))
    # Gram minus ideal: -1 for the middle class (its mean is the centre), six halves, two zeros.
    assert found.nc2 == pytest.approx(math.sqrt((1 + 6 / 4) / (3 + 6 / 4)))
    assert found.nc3 == pytest.approx(2 / 3)
    assert found.nc4 == pytest.approx(4 / 6)  # the linear classifier never says "middle"


def slow_unit(vector: FloatArray) -> FloatArray:
    return np.array([entry / math.sqrt(sum(v * v for v in vector)) for entry in vector])


def slow_mean(vectors: list[FloatArray]) -> FloatArray:
    return np.array([sum(entries) / len(vectors) for entries in zip(*vectors, strict=True)])


def slow_collapse(x: FloatArray, truth: IntArray, w: FloatArray, v: FloatArray) -> Collapse:
    """The definitions, one class, pair and image at a time, with whole scatter matrices."""

    labels = sorted(set(truth.tolist()))
    k = len(labels)
    rows = {c: [row for row, label in zip(x, truth, strict=True) if label == c] for c in labels}
    means = {c: slow_mean(rows[c]) for c in labels}
    centre = slow_mean(list(means.values()))
    within, between = np.zeros((x.shape[1],) * 2), np.zeros((x.shape[1],) * 2)
    for c in labels:
        within += sum(np.outer(r - means[c], r - means[c]) for r in rows[c]) / len(rows[c]) / k
        between += np.outer(means[c] - centre, means[c] - centre) / k
    hat = {c: slow_unit(means[c] - centre) for c in labels}
    error = norm = 0.0
    for a in labels:
        for b in labels:
            ideal = 1.0 if a == b else -1 / (k - 1)
            error += (float(hat[a] @ hat[b]) - ideal) ** 2
            norm += ideal**2
    cosines = []
    for table in (w, v):
        middle = slow_mean([table[c] for c in labels])
        cosines.append(sum(float(hat[c] @ slow_unit(table[c] - middle)) for c in labels) / k)
    agree = 0
    for row in x:
        says = max(labels, key=lambda c: float(row @ w[c]))
        agree += says == min(labels, key=lambda c: float(np.linalg.norm(row - means[c])))
    nc1 = float(np.trace(within) / np.trace(between))
    return Collapse(nc1, math.sqrt(error / norm), cosines[0], cosines[1], agree / len(x))


@pytest.mark.parametrize("seed", range(5))
def test_collapse_against_slow_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.choice([0, 1, 3, 4, 6], size=80)  # classes 2 and 5 have no image
    weights, vertices = rng.standard_normal((7, 9)), simplex(7, 9)
    features = vertices[truth] + 0.5 * weights[truth] + 0.7 * rng.standard_normal((80, 9)) + 0.3
    found = collapse(features, truth, weights, vertices)
    assert found is not None and 0 < found.nc4 < 1
    assert asdict(found) == pytest.approx(asdict(slow_collapse(features, truth, weights, vertices)))


def test_collapse_without_two_distinct_means_is_none() -> None:
    weights = np.eye(3)
    assert collapse(np.ones((4, 3)), ids("1 1 1 1"), weights) is None
    assert collapse(np.full((6, 3), 0.1), ids("0 0 0 1 1 2"), weights) is None
    assert collapse(np.zeros((2, 3)), ids("0 1"), weights) is None


@pytest.mark.parametrize(
    ("features", "truth", "weights", "vertices", "message"),
    [
        (np.ones(3), ids("0 1 0"), np.eye(3), None, "Features of shape"),
        (np.full((2, 3), np.nan), ids("0 1"), np.eye(3), None, "finite"),
        (np.ones((2, 3)), ids("0 3"), np.eye(3), None, "from 0 to 3"),
        (np.ones((2, 3)), ids("0"), np.eye(3), None, "2 features but 1 true"),
        (np.ones((2, 3)), ids("0 1"), np.eye(4), None, "weights have shape"),
        (np.ones((2, 3)), ids("0 1"), np.eye(3), np.eye(2), "prototypes have shape"),
        (np.ones((2, 3)), ids("0 2"), np.eye(3), np.eye(3)[:2], "from 0 to 2"),
    ],
)
def test_collapse_refuses_what_does_not_fit(
    features: FloatArray, truth: IntArray, weights: FloatArray, vertices: Any, message: str
) -> None:
    with pytest.raises(GoalError, match=message):
        collapse(features, truth, weights, vertices)
