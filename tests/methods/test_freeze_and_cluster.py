"""Freeze and Cluster: names by k-means, terms by independent computation, and what stays frozen."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from goal.learning.shared_base import base_settings
from goal.methods.base import infer_all
from goal.methods.freeze_and_cluster import FreezeAndCluster, FreezeAndClusterSettings
from goal.methods.vb_cgcd import VBCGCD, VBCGCDSettings
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail
from goal.testing.teaching import learn
from tests.methods.test_frost import matched_accuracy, seeded


def make(**overrides: Any) -> FreezeAndCluster:
    values = {"name": "freeze_and_cluster", **SMALL, **overrides}
    settings = FreezeAndClusterSettings.parse(values)
    return FreezeAndCluster.build(settings, small_tail(), CLASSES, seeded()).eval()


def test_only_the_classifier_learns_after_stage_0() -> None:
    method = make()
    learn(method, base_stage())
    before = {name: value.clone() for name, value in method.state_dict().items()}
    learn(method, next_stage())
    for name, value in method.state_dict().items():
        if name.startswith(("tail.", "projector.")):
            assert torch.equal(value, before[name]), name
    assert not torch.equal(method.classifier.weight[:3], before["classifier.weight"])


def test_images_of_the_clusters_least_like_known_classes_are_named() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage(epochs=20))
    method.begin_stage(stage, seeded())
    features = infer_all(method, stage.tokens).features
    known = F.normalize(method.gaussians.means, dim=1)
    heads = method.classifier.weight.detach()[3:]
    for label in range(2):  # a head is the direction of its images
        centre = F.normalize(features[method.named == label].mean(dim=0), dim=0)
        torch.testing.assert_close(heads[label], centre, rtol=1e-4, atol=1e-5)
    unnamed = features[method.named < 0]
    assert len(unnamed)
    nearest = [max(float(row @ mean) for mean in known) for row in unnamed]
    assert np.mean(nearest) > float((heads @ known.T).max())


def test_the_objective_by_loops() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage(epochs=20))
    method.begin_stage(stage, seeded())
    mine = method.named >= 0
    features = infer_all(method, stage.tokens).features[mine]
    value = method.objective(features, method.named[mine], seeded(5))
    heads = F.normalize(method.classifier.weight.detach(), dim=1)
    named = 0.0
    for row, name in zip(features, method.named[mine].tolist(), strict=True):
        named -= float((heads @ row / 0.1).log_softmax(dim=0)[3 + name]) / len(features)
    drawn, classes = method.gaussians.sample(2, seeded(5))
    assert classes.tolist() == [0, 0, 1, 1, 2, 2]
    kept = F.cross_entropy(F.normalize(drawn, dim=1) @ heads.T / 0.1, classes).item()
    assert value.item() == pytest.approx(named + kept, rel=1e-4)
    method.zero_grad()
    value.backward()
    asking = {name for name, weight in method.named_parameters() if weight.grad is not None}
    assert asking == {"classifier.weight"}


def test_steps_lower_the_objective() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage(epochs=20))
    method.begin_stage(stage, seeded())
    mine = method.named >= 0
    features, named = infer_all(method, stage.tokens).features[mine], method.named[mine]
    before = method.objective(features, named, seeded(5)).item()
    method._learn(features, named, seeded())
    assert method.objective(features, named, seeded(5)).item() < before
    assert method.classifier.weight.grad is None


def test_gaussians_are_measured_on_named_images() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage(epochs=20))
    learn(method, stage)
    features = infer_all(method, stage.tokens).features
    for label in range(2):
        mine = features[method.named == label].numpy()
        np.testing.assert_allclose(method.gaussians.means[3 + label], mine.mean(0), atol=1e-6)


def test_the_base_model_is_that_of_the_other_supervised_ones() -> None:
    other = VBCGCDSettings.parse({"name": "vb_cgcd", **SMALL})
    own = make().settings
    assert base_settings(FreezeAndCluster, own) == base_settings(VBCGCD, other)


def test_planted_new_classes_are_found() -> None:
    found = []
    for seed in range(3):
        method, stage = make(), next_stage(epochs=10)
        learn(method, base_stage(epochs=30), seed)
        learn(method, stage, seed)
        found.append(matched_accuracy(method, stage))
    assert np.mean(found) > 0.8
