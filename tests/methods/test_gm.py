"""GM's phases: what counts as novel, what grows, how the branches merge, what is rehearsed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goal.common.progress import Reporter
from goal.learning.shared_base import base_settings
from goal.learning.trainer import StageTrainer
from goal.losses.contrastive import info_nce
from goal.methods.base import Batch, Stage, infer_all
from goal.methods.gm import GM, GMSettings
from goal.methods.vb_cgcd import VBCGCD, VBCGCDSettings
from goal.testing.planted import CLASSES, SMALL, PlantedTokens, base_stage, next_stage, small_tail
from goal.testing.teaching import TRAINING, learn
from tests.methods.test_frost import matched_accuracy, seeded


def make(**overrides: Any) -> GM:
    settings = GMSettings.parse({"name": "gm", **SMALL, **overrides})
    return GM.build(settings, small_tail(), CLASSES, seeded()).eval()


def begun(stage: Stage, **overrides: Any) -> GM:
    """A method that has learned stage 0 and begun the next."""
    method = make(**overrides)
    learn(method, base_stage())
    method.begin_stage(stage, seeded())
    return method


def batch_of(stage: Stage, positions: Tensor) -> Batch:
    return Batch(*stage.tokens.pair(positions, seeded(1)), positions)


def tail_weights(method: GM) -> dict[str, Tensor]:
    trained = method.tail.named_parameters()
    return {name: p.detach().clone() for name, p in trained if p.requires_grad}


def test_images_far_from_all_prototypes_count_as_novel_and_are_named_by_cluster() -> None:
    method, stage = make(), next_stage({0: 12, 1: 12, 2: 12, 3: 12, 4: 12})
    learn(method, base_stage(epochs=0))  # planted features, as they are
    method.begin_stage(stage, seeded())
    assert isinstance(stage.tokens, PlantedTokens)
    truth, named = stage.tokens.classes, method.named
    assert (named[truth < 3] == -1).float().mean() > 0.9
    for label in (3, 4):
        mine = named[truth == label]
        assert (mine == mine[mine >= 0].mode().values).float().mean() > 0.9
    centres = F.normalize(method.classifier.weight.detach()[3:], dim=1)
    features = infer_all(method, stage.tokens).features
    for cluster in range(2):
        centre = F.normalize(features[named == cluster].mean(dim=0), dim=0)
        torch.testing.assert_close(centres[cluster], centre)


def test_the_base_model_is_that_of_vb_cgcd() -> None:
    method = make()
    settings = VBCGCDSettings.parse({"name": "vb_cgcd", **SMALL})
    other = VBCGCD.build(settings, small_tail(), CLASSES, seeded()).eval()
    assert base_settings(GM, method.settings) == base_settings(VBCGCD, settings)
    learn(method, base_stage())
    learn(other, base_stage())
    theirs = dict(other.named_parameters())
    trained = {key: p for key, p in method.named_parameters() if p.requires_grad}
    assert {key.partition(".")[0] for key in trained} == {"tail", "projector", "classifier"}
    for key, parameter in trained.items():
        assert torch.equal(parameter, theirs[key]), key


def test_growth_terms_see_the_novel_images_and_the_new_heads_only() -> None:
    stage = next_stage()
    method = begun(stage, pair_threshold=0.4, pair_weight=2.0, consistency_weight=3.0)
    batch = batch_of(stage, torch.arange(10))
    terms = method.losses(batch, seeded())
    assert terms.keys() == {"replay", "contrast", "pairs", "pseudo_labels", "consistency"}
    named = method.named[:10]
    novel = named >= 0
    assert 0 < int(novel.sum()) < 10
    heads = F.normalize(method.classifier.weight[3:], dim=1)
    features, logits = [], []
    for view in (batch.first, batch.second):
        features.append(F.normalize(method.tail(view), dim=1)[novel])
        logits.append(features[-1] @ heads.T / 0.1)
    cosines = (features[0] @ features[0].T).tolist()
    p, q = (z.softmax(dim=1) for z in logits)
    pairs = []
    for i in range(len(p)):
        for j in range(len(q)):
            agree = min(max((p[i] @ q[j]).item(), 1e-6), 1 - 1e-6)
            pairs.append(-math.log(agree if cosines[i][j] >= 0.4 else 1 - agree))
    assert terms["pairs"].item() == pytest.approx(2 * np.mean(pairs), rel=1e-3)
    copied = [F.cross_entropy(z, named[novel]).item() for z in logits]
    assert terms["pseudo_labels"].item() == pytest.approx(np.mean(copied), rel=1e-3, abs=1e-6)
    apart = (p - q).square().mean().item()
    assert terms["consistency"].item() == pytest.approx(3 * apart, rel=1e-3, abs=1e-8)


def test_a_batch_without_novel_images_contrasts_and_rehearses() -> None:
    stage = next_stage()
    method = begun(stage, contrast_weight=2.0)
    known = (method.named < 0).nonzero().flatten()[:4]
    batch = batch_of(stage, known)
    terms = method.losses(batch, seeded(7))
    assert terms.keys() == {"replay", "contrast"}
    views = [method.infer(view).embeddings for view in (batch.first, batch.second)]
    assert views[0] is not None and views[1] is not None
    contrast = 2 * info_nce(views[0], views[1], 1.0).item()
    assert terms["contrast"].item() == pytest.approx(contrast, rel=1e-5)
    features, classes = method.gaussians.sample(2, seeded(7))
    assert classes.unique().tolist() == [0, 1, 2]
    cosines = F.normalize(features, dim=1) @ F.normalize(method.classifier.weight, dim=1).T
    expected = F.cross_entropy(cosines / 0.1, classes).item()
    assert terms["replay"].item() == pytest.approx(expected, rel=1e-4)


def test_the_static_branch_waits_for_the_merge_and_takes_over_in_it() -> None:
    stage = next_stage(epochs=4)
    method = begun(stage, momentum=0.75)
    expected = tail_weights(method)
    norm = {k: v.clone() for k, v in method.tail.final_norm.state_dict().items()}
    phases = []
    dynamic: list[dict[str, Tensor]] = []

    def note(record: dict[str, Any]) -> None:
        phases.append("pairs" in record)
        dynamic.append(tail_weights(method))

    StageTrainer(method, stage, TRAINING, seeded()).run(note, Reporter())
    assert phases == [True, True, False, False]
    assert len(method.gaussians) == 5 and not method.growing
    grown = dynamic[1]  # the last epoch before the merge
    expected = {key: 0.75 * expected[key] + 0.25 * grown[key] for key in expected}
    for key, weight in tail_weights(method).items():
        torch.testing.assert_close(weight, expected[key])
    for key, value in method.tail.final_norm.state_dict().items():
        assert torch.equal(value, norm[key])
    merged = tail_weights(method)
    method.end_stage(stage, seeded())  # nothing is left to merge
    for key, weight in tail_weights(method).items():
        assert torch.equal(weight, merged[key])


def test_new_gaussians_are_merged_features_under_the_labels_of_the_dynamic_branch() -> None:
    stage = next_stage()
    method = begun(stage)
    with torch.no_grad():
        method.tail.out.bias.add_(0.2 * torch.randn(12, generator=seeded(3)))
    known, novel = method.gaussians.means.clone(), method.named >= 0
    scores = infer_all(method, stage.tokens).scores
    assert scores is not None
    named = scores[novel, 3:].argmax(dim=1)
    method.end_stage(stage, seeded())
    features = infer_all(method, stage.tokens).features[novel]
    assert torch.equal(method.gaussians.means[:3], known)
    for label in named.unique().tolist():
        mean = features[named == label].mean(dim=0)
        torch.testing.assert_close(method.gaussians.means[3 + label], mean)
        head = method.classifier.weight.detach()[3 + label]
        torch.testing.assert_close(head, F.normalize(mean, dim=0))


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_stage_too_short_to_merge_merges_when_it_ends(epochs: int) -> None:
    method = make()
    learn(method, base_stage())
    learn(method, next_stage(epochs=epochs))
    assert len(method.gaussians) == method.num_classes == 5


def test_planted_new_classes_are_found() -> None:
    found = []
    for seed in range(3):
        method, stage = make(), next_stage(epochs=20)
        learn(method, base_stage(epochs=0), seed)
        learn(method, stage, seed)
        found.append(matched_accuracy(method, stage))
    assert np.mean(found) > 0.8
