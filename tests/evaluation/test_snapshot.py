"""What a stage leaves for the report: checked by loops, scikit-learn and hand-made examples."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA

from goal.common.progress import Reporter
from goal.data.images import FileImages
from goal.evaluation.snapshot import confidence, mean_cosines, project, write_thumbnails
from goal.methods.base import Outputs


def test_confidence_is_the_lead_over_the_best_other_class() -> None:
    scores = torch.tensor([[0.5, 0.2, 0.1], [0.1, 0.4, 0.9]])
    found = confidence(Outputs(torch.zeros(2, 2), scores), np.array([0, 1]), 3)
    np.testing.assert_allclose(found, [0.3, -0.5], atol=1e-6)


def test_without_scores_confidence_is_by_cosine_with_cluster_means() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = confidence(Outputs(features), np.array([0, 0, 1, 1]), 3)
    mean = np.array([0.3, 0.9]) / np.hypot(0.3, 0.9)
    expected = [1 - mean[0], 1 - mean[0], mean[1], mean @ [0.6, 0.8] - 0.6]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_one_class_alone() -> None:
    found = confidence(Outputs(torch.zeros(1, 2), torch.tensor([[0.7]])), np.array([0]), 1)
    np.testing.assert_allclose(found, [0.7], atol=1e-6)


def test_projection_is_principal_components_up_to_sign() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 6)) * [5, 3, 1, 1, 0.5, 0.1]
    others = rng.normal(size=(3, 6))
    flat, flat_others, explained = project(points, others)
    pca = PCA(2, svd_solver="full").fit(points)
    for ours, theirs in ((flat, pca.transform(points)), (flat_others, pca.transform(others))):
        signs = np.sign((flat * pca.transform(points)).sum(axis=0))
        np.testing.assert_allclose(ours * signs, theirs, atol=1e-4)
    assert explained == pytest.approx(pca.explained_variance_ratio_.sum(), abs=1e-5)
    again = project(points, others)[0]
    np.testing.assert_array_equal(flat, again)


def test_projection_of_points_that_coincide() -> None:
    flat, others, explained = project(np.ones((3, 4)), np.zeros((0, 4)))
    assert flat.shape == (3, 2) and others.shape == (0, 2) and explained == 0
    assert not flat.any()


def test_mean_cosines_by_loops() -> None:
    rng = np.random.default_rng(1)
    rows, truth = rng.normal(size=(30, 5)), np.repeat([0, 2, 3], 10)
    found = mean_cosines(rows, truth, np.array([0, 3]))
    means = {
        c: np.mean([row for row, t in zip(rows, truth, strict=True) if t == c], axis=0)
        for c in (0, 2, 3)
    }
    centre = sum(means.values()) / 3
    a, b = means[0] - centre, means[3] - centre
    expected = a @ b / np.sqrt((a @ a) * (b @ b))
    np.testing.assert_allclose(found, [[1, expected], [expected, 1]], atol=1e-6)


def test_thumbnails_are_small_and_broken_images_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for path in paths[:2]:
        Image.new("RGB", (200, 100), "teal").save(path)
    paths[2].write_text("not an image")
    said: list[str] = []

    class Listening(Reporter):
        def warn(self, text: str) -> None:
            said.append(text)

    images = FileImages(paths, np.zeros(3, dtype=np.int64))
    archive = tmp_path / "thumbnails.zip"
    write_thumbnails(archive, images, np.array([2, 1, 0]), [0, 1, 1], Listening())
    with zipfile.ZipFile(archive) as opened:
        assert opened.namelist() == ["1.webp"]
        assert Image.open(io.BytesIO(opened.read("1.webp"))).size == (64, 32)
    assert len(said) == 1 and "c.png" in said[0]
