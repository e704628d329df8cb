"""VanillaGCD: two contrasts, then one; no classifier; k-means with the classes seen."""

from typing import Any

import pytest
import torch

from goal.losses.contrastive import info_nce, sup_con
from goal.methods.base import Batch, LabelledBatch, infer_all
from goal.methods.vanilla_gcd import VanillaGCD, VanillaGCDSettings
from goal.numerics.clustering import kmeans
from goal.testing.planted import CLASSES, SMALL, WIDTH, base_stage, next_stage, small_tail
from goal.testing.teaching import TEST, learn


def make(**overrides: Any) -> VanillaGCD:
    settings = VanillaGCDSettings.parse({"name": "vanilla-gcd", **SMALL, **overrides})
    rng = torch.Generator().manual_seed(0)
    return VanillaGCD.build(settings, small_tail(), CLASSES, rng).eval()


def views(labelled: bool) -> Batch:
    stage, positions, rng = base_stage(), torch.arange(8), torch.Generator().manual_seed(1)
    pair = stage.tokens.pair(positions, rng)
    if labelled:
        return LabelledBatch(*pair, positions, stage.labels[positions])
    return Batch(*pair, positions)


@pytest.mark.parametrize("share", [0.35, 0.5])
def test_both_contrasts_with_labels_and_the_unsupervised_one_without(share: float) -> None:
    method, rng = make(sup_con_weight=share), torch.Generator()
    batch = views(labelled=True)
    assert isinstance(batch, LabelledBatch)
    first, second = (method.infer(view).embeddings for view in (batch.first, batch.second))
    assert first is not None and second is not None
    contrast = info_nce(first, second, 1.0).item()
    supervised = sup_con(first, second, batch.labels, 0.07).item()
    terms = method.losses(batch, rng)
    assert terms.keys() == {"contrast", "sup_contrast"}
    assert terms["contrast"].item() == pytest.approx((1 - share) * contrast, rel=1e-5)
    assert terms["sup_contrast"].item() == pytest.approx(share * supervised, rel=1e-5)
    terms = method.losses(views(labelled=False), rng)
    assert terms.keys() == {"contrast"}
    assert terms["contrast"].item() == pytest.approx(contrast, rel=1e-5)


def test_there_is_no_classifier_and_of_the_past_only_centroids() -> None:
    method = make()
    learn(method, base_stage())
    outputs = infer_all(method, TEST)
    assert outputs.scores is None and outputs.embeddings is not None
    owners = {key.partition(".")[0] for key in method.state_dict()}
    assert owners == {"tail", "projector", "seen", "seed", "centroids", "before"}
    assert method.centroids.shape == (3, WIDTH) and len(method.before) == 0
    assert method.weights() is None and method.directions() is None


def test_prediction_is_k_means_with_as_many_clusters_as_classes_seen() -> None:
    method = make(restarts=3)
    for stage, seen in ((base_stage(), 3), (next_stage(), 5)):
        learn(method, stage)
        assert method.num_classes == seen
        features = infer_all(method, TEST).features
        rng = torch.Generator().manual_seed(int(method.seed))
        expected, _ = kmeans(features, seen, rng, restarts=3)
        predicted = method.predict(infer_all(method, TEST))
        assert torch.equal(predicted, expected)
        assert len(predicted.unique()) == seen


def test_planted_classes_are_clustered_once_contrast_has_worked() -> None:
    method = make()
    learn(method, base_stage(epochs=20))
    predicted = method.predict(infer_all(method, base_stage().tokens))
    for label in range(3):
        members = predicted[base_stage().labels == label]
        assert (members == members.mode().values).float().mean() > 0.9
