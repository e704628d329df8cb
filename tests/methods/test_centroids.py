"""Every method can tell the class of a single image, and class ids never change places."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer
from goal.methods.base import Method, infer_all
from goal.methods.kmeans import Clustering
from goal.methods.registry import METHODS
from goal.numerics.clustering import drifted, kmeans_beside
from goal.settings.training import TrainingSettings
from goal.testing.planted import (
    PlantedTokens,
    base_stage,
    next_stage,
    planted_classes,
    small_method,
)

CLUSTERING = [name for name, spec in METHODS.items() if issubclass(spec.method, Clustering)]
TRAINING = TrainingSettings(batch_size=16, base_lr=0.02, stage_lr=0.005)


def two_stages(name: str) -> Method:
    method = small_method(name)
    for stage in (base_stage(), next_stage()):
        rng = torch.Generator().manual_seed(stage.index)
        method.begin_stage(stage, rng)
        trainer = StageTrainer(method, stage, TRAINING, rng)
        if method.trains(stage.index):
            method.fit_stage(stage, lambda: trainer.run(lambda record: None, Reporter()))  # noqa: B023
        method.end_stage(stage, rng)
    return method


@pytest.mark.parametrize("name", CLUSTERING)
def test_clustering_methods_keep_base_ids_and_find_the_planted_classes(name: str) -> None:
    method = two_stages(name)
    truth = planted_classes(dict.fromkeys(range(5), 8), seed=4)
    found = method.class_scores(infer_all(method, PlantedTokens(truth, seed=8))).argmax(dim=1)
    base = truth < 3
    assert (found[base] == truth[base]).float().mean() > 0.9
    new = found[~base]
    assert set(new.unique().tolist()) == {3, 4}
    assert len(torch.stack([truth[~base], new]).unique(dim=1).T) == 2  # one id per planted class


def test_kmeans_beside_nothing_is_kmeans() -> None:
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(60, 3)) + 6 * rng.integers(0, 3, (60, 1)))
    start = points[:3]
    centres = kmeans_beside(points, points[:0], start)
    peer = KMeans(3, init=start.numpy(), n_init=1, tol=0, algorithm="lloyd").fit(points.numpy())
    torch.testing.assert_close(centres, torch.from_numpy(peer.cluster_centers_))


def test_fixed_centres_keep_their_points_and_lonely_ones_stay() -> None:
    points = torch.tensor([[0.0], [0.2], [5.0], [5.4], [9.0]])
    fixed = torch.tensor([[0.1]])
    moved = kmeans_beside(points, fixed, torch.tensor([[5.0], [8.0], [100.0]]))
    torch.testing.assert_close(moved, torch.tensor([[5.2], [9.0], [100.0]]))


def test_centres_drift_with_the_points_around_them() -> None:
    rng = torch.Generator().manual_seed(0)
    before = torch.nn.functional.normalize(torch.randn(40, 6, generator=rng).double(), dim=1)
    shift = torch.randn(6, generator=rng).double()
    centres = before[:4]
    torch.testing.assert_close(drifted(centres, before, before + shift), centres + shift)
    torch.testing.assert_close(drifted(centres, before[:0], before[:0]), centres)
    near = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    after = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    moved = drifted(near, near, after)
    weight = float(torch.tensor([1.0, 0.0]).div(0.1).softmax(dim=0)[0])
    torch.testing.assert_close(moved[0], torch.tensor([1.0, 0.5 * weight]))
