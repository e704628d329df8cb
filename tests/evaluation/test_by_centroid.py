"""Accuracy by the nearest centroid stands beside k-means, for methods that have no scores."""

import numpy as np
import torch
import torch.nn.functional as F

from goal.evaluation.scoring import evaluate
from goal.methods.base import infer_all
from goal.protocol.stages import StageIds
from goal.testing.planted import base_stage, small_method
from goal.testing.teaching import learn


def test_stage_0_by_the_nearest_mean_of_labelled_images() -> None:
    method, stage = small_method("kmeans"), base_stage()
    learn(method, stage)
    ids = StageIds(0, np.arange(36), np.arange(36), 0, 3)
    record = evaluate(method, stage.tokens, stage.labels.numpy(), ids, 3).record
    features = infer_all(method, stage.tokens).features
    means = torch.stack([features[stage.labels == label].mean(dim=0) for label in range(3)])
    right = 0
    for feature, label in zip(features, stage.labels.tolist(), strict=True):
        cosines = [float(feature @ F.normalize(mean, dim=0)) for mean in means]
        right += cosines.index(max(cosines)) == label
    assert right > 18
    assert record["by_centroid"] == 100 * right / 36
    predicted = evaluate(method, stage.tokens, stage.labels.numpy(), ids, 3).predictions
    assert np.array_equal(predicted, method.predict(infer_all(method, stage.tokens)).numpy())


def test_methods_with_scores_have_no_such_key() -> None:
    method, stage = small_method("vb_cgcd"), base_stage()
    learn(method, stage)
    ids = StageIds(0, np.arange(36), np.arange(36), 0, 3)
    record = evaluate(method, stage.tokens, stage.labels.numpy(), ids, 3).record
    assert "by_centroid" not in record


def test_nothing_is_said_before_a_stage_has_ended() -> None:
    method, stage = small_method("vanilla_gcd"), base_stage()
    method.begin_stage(stage, torch.Generator())
    ids = StageIds(0, np.arange(36), np.arange(36), 0, 3)
    record = evaluate(method, stage.tokens, stage.labels.numpy(), ids, 3).record
    assert "by_centroid" not in record
