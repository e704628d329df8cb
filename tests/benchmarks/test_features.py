"""What the bench of features plants, and how it is scored, against slow re-implementations."""

from itertools import permutations
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.speed import clusters, page
from benchmarks.speed.planted import Planted, accuracy, write


def test_planted_images_lie_about_their_centres_and_the_best_answer_is_bayes() -> None:
    planted = Planted(known=4, new=2, width=80, near=3.0, apart=3.0)
    classes = np.arange(6000) % 6
    images = np.concatenate([*planted.images(classes, 1)])
    again = np.concatenate([*planted.images(classes, 1)])
    assert np.array_equal(images, again)
    away = images / planted.scatter - planted.centres[classes]
    assert np.allclose(away.mean(axis=0), 0, atol=0.08)
    spread = away.std(axis=0)
    assert np.allclose(spread, spread[0], rtol=0.1)  # alike in every direction
    some = images[:50]
    slow = [
        int(np.argmin([np.linalg.norm(row / planted.scatter - c) for c in planted.centres]))
        for row in some
    ]
    assert planted.best(some).tolist() == slow


def test_what_is_written_is_what_was_planted(tmp_path: Path) -> None:
    planted = Planted(known=3, new=2, width=70)
    truth, best = write(planted, 200, 5, tmp_path)
    week = np.load(tmp_path / "week.npy")
    labelled = np.load(tmp_path / "labelled.npz")
    assert week.dtype == np.float16 and week.shape == (200, 70)
    assert labelled["y"].tolist() == sorted(labelled["y"].tolist()) and len(labelled["X"]) == 15
    right = 100 * (planted.best(week.astype(np.float32)) == truth).mean()
    assert abs(right - best) < 2 and np.bincount(truth).tolist() == [40] * 5


def test_accuracy_is_that_of_the_best_of_all_matchings() -> None:
    rng = np.random.default_rng(0)
    truth, found = rng.integers(0, 6, 300), rng.integers(0, 6, 300)
    slow = max(
        np.mean(np.array([0, 1, 2, *order])[found] == truth) for order in permutations((3, 4, 5))
    )
    assert np.isclose(accuracy(found, truth, 3), 100 * slow)


def test_distortion_is_what_scikit_learn_calls_inertia() -> None:
    given = clusters.points(400, 5, width=8)
    model = KMeans(5, n_init=1, random_state=0).fit(given)
    found = clusters.distortion(given, model.cluster_centers_)
    assert np.isclose(found, model.inertia_ / len(given), rtol=1e-4)


def test_points_measured_again_take_the_place_of_the_old_ones() -> None:
    old = "# Speed\n\nold machine\n\n## 1. One\n\na\n\n## 10. Ten\n\nb\n\n### below\n"
    new = "# Speed\n\nnew machine\n\n## 2. Two\n\nc\n\n## 10. Ten\n\nd\n"
    found = page.merged(old, new)
    assert found == (
        "# Speed\n\nold machine\n\n## 1. One\n\na\n\n## 2. Two\n\nc\n\n## 10. Ten\n\nd\n"
    )
    assert page.merged(found, old.replace("old", "newest")).startswith("# Speed\n\nold machine")
    assert page.merged(old, old) == old
