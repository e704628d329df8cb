"""FRoST's terms by independent computation, its two heads, and what it keeps of past classes."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from goal.losses.pairwise import ramp_up
from goal.methods.base import Batch, LabelledBatch, Method, Stage, infer_all
from goal.methods.frost import FRoST, FRoSTSettings
from goal.methods.parts.class_gaussians import ClassGaussians
from goal.numerics.clustering import assign, overlap
from goal.testing.planted import CLASSES, PlantedTokens, base_stage, next_stage, small_tail
from goal.testing.teaching import learn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(**overrides: Any) -> FRoST:
    settings = FRoSTSettings.parse({"name": "frost", **overrides})
    return FRoST.build(settings, small_tail(), CLASSES, seeded()).eval()


def begun(**overrides: Any) -> FRoST:
    """A method that has learned stage 0 and begun the next, its tail moved since then."""
    method = make(**overrides)
    learn(method, base_stage())
    method.begin_stage(next_stage(), seeded())
    with torch.no_grad():
        method.tail.out.bias.add_(0.3 * torch.randn(12, generator=seeded(2)))
    return method


def batch_of(stage: Stage, count: int = 8) -> Batch:
    positions = torch.arange(count)
    return Batch(*stage.tokens.pair(positions, seeded(1)), positions)


def matched_accuracy(method: Method, stage: Stage) -> float:
    """Accuracy under the best matching of predicted to planted classes."""
    assert isinstance(stage.tokens, PlantedTokens)
    predicted, truth = method.predict(infer_all(method, stage.tokens)), stage.tokens.classes
    table = overlap(predicted, truth, CLASSES)
    return float(table[torch.arange(CLASSES), assign(table)].sum() / len(truth))


# -- heads -------------------------------------------------------------------------------------


def test_new_classes_start_one_logit_below_all_others_beside_a_fresh_head() -> None:
    method = make()
    learn(method, base_stage())
    old = method.heads.bias.detach().clone()
    assert len(old) == 3 and int(method.heads.fresh) == 0
    method.begin_stage(next_stage(), seeded())
    biases = method.heads.bias.detach()
    assert torch.equal(biases[:3], old)
    np.testing.assert_allclose(biases[3:5] / 0.1, [float(old.min()) / 0.1 - 1] * 2, rtol=1e-5)
    assert biases[5:].tolist() == [0, 0]
    joint, fresh = method.heads(torch.eye(12))
    assert joint.shape == (12, 5) and fresh.shape == (12, 2)
    assert method.num_classes == 5
    kept = method.heads.weight.detach()[:5].clone()
    method.end_stage(next_stage(), seeded())
    assert torch.equal(method.heads.weight, kept) and int(method.heads.fresh) == 0


# -- terms -------------------------------------------------------------------------------------


def test_the_base_objective_is_cross_entropy_alone() -> None:
    method, stage = make(), base_stage()
    method.begin_stage(stage, seeded())
    positions = torch.arange(6)
    pair = stage.tokens.pair(positions, seeded(1))
    labels = stage.labels[positions]
    terms = method.losses(LabelledBatch(*pair, positions, labels), seeded())
    assert terms.keys() == {"classification"}
    total = 0.0
    for view in pair:
        scores = method.infer(view).scores
        assert scores is not None
        total += F.cross_entropy(scores / 0.1, labels).item()
    assert terms["classification"].item() == pytest.approx(total / 2, rel=1e-5)


def test_discovery_terms() -> None:
    method, batch = begun(pair_threshold=0.4), batch_of(next_stage())
    method.begin_epoch(next_stage(epochs=8), 3, seeded())
    ramp = math.exp(-5 * (1 - 3 / 6) ** 2)  # three quarters of eight epochs
    terms = method.losses(batch, seeded())
    assert terms.keys() == {"pairs", "consistency", "pseudo_labels", "replay", "distillation"}
    joint, fresh, features = [], [], []
    for view in (batch.first, batch.second):
        feature = F.normalize(method.tail(view), dim=1)
        scores = method.heads.weight @ feature.T + method.heads.bias[:, None]
        features.append(feature)
        joint.append((scores[:5] / 0.1).T)
        fresh.append((scores[5:] / 0.1).T)
    cosines = (features[0] @ features[0].T).tolist()
    assert 8 < sum(cosine >= 0.4 for row in cosines for cosine in row) < 64
    pairs = 0.0
    p, q = (head.softmax(dim=1) for head in fresh)
    for i in range(8):
        for j in range(8):
            agree = (p[i] @ q[j]).item()
            pairs -= math.log(agree if cosines[i][j] >= 0.4 else 1 - agree) / 64
    assert terms["pairs"].item() == pytest.approx(pairs, rel=1e-4)
    apart = (p - q).square().mean().item()
    assert terms["consistency"].item() == pytest.approx(25 * ramp * apart, rel=1e-4)
    copied = F.cross_entropy(joint[0], 3 + fresh[0].argmax(dim=1)).item()
    assert terms["pseudo_labels"].item() == pytest.approx(ramp * copied, rel=1e-4)


def test_retention_terms() -> None:
    method, batch = begun(), batch_of(next_stage())
    terms = method.losses(batch, seeded(5))
    features, classes = method.gaussians.sample(2, seeded(5), one_spread=True)
    assert classes.tolist() == [0, 0, 1, 1, 2, 2]
    logits = (features @ method.heads.weight[:5].T + method.heads.bias[:5]) / 0.1
    expected = F.cross_entropy(logits, classes).item()
    assert terms["replay"].item() == pytest.approx(expected, rel=1e-4)
    tails = (method.tail, method.teacher)
    now, then = (F.normalize(tail(batch.first), dim=1) for tail in tails)
    moved = (now / math.sqrt(8) - then / math.sqrt(8)).square().sum().sqrt().item()
    assert moved > 1e-2
    assert terms["distillation"].item() == pytest.approx(10 * moved, rel=1e-4)


def test_weights_ramp_up_in_a_share_of_each_stage_and_never_at_stage_0() -> None:
    method = make(ramp_share=0.5)
    method.begin_epoch(base_stage(), 2, seeded())
    assert float(method.ramp) == 0
    for epoch in range(6):
        method.begin_epoch(next_stage(epochs=6), epoch, seeded())
        assert float(method.ramp) == pytest.approx(ramp_up(epoch, 3))


# -- memory ------------------------------------------------------------------------------------


def test_gaussians_are_means_and_variances_of_classes() -> None:
    features = torch.randn(30, 4, generator=seeded())
    classes = torch.arange(30) % 3
    memory = ClassGaussians(4)
    memory.remember(features, classes, torch.zeros(3, 4))
    for label in range(3):
        mine = features[classes == label].numpy()
        np.testing.assert_allclose(memory.means[label], mine.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(memory.variances[label], mine.var(axis=0), atol=1e-6)
    known = copy.deepcopy(memory)
    instead = torch.ones(2, 4)
    memory.remember(features[:4], torch.zeros(4, dtype=torch.int64), instead)
    assert torch.equal(memory.means[:3], known.means)
    assert torch.equal(memory.means[4], instead[1])  # nobody was of that class
    np.testing.assert_allclose(memory.variances[4], memory.variances[:4].mean(dim=0), rtol=1e-6)


def test_sampled_features_have_the_moments_of_their_class() -> None:
    memory = ClassGaussians(3)
    spread = torch.tensor([[0.1, 1.0, 2.0], [3.0, 0.5, 0.2]])
    memory.means = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]])
    memory.variances = spread.square()
    features, classes = memory.sample(20_000, seeded())
    for label in range(2):
        mine = features[classes == label]
        error = (mine.mean(dim=0) - memory.means[label]).abs() / spread[label]
        assert float(error.max()) < 4.5 / math.sqrt(20_000)
        np.testing.assert_allclose(mine.std(dim=0), spread[label], rtol=0.03)


def test_new_gaussians_are_those_of_the_fresh_heads_choice() -> None:
    method, stage = begun(), next_stage()
    with torch.no_grad():  # the joint head calls nothing new; the fresh head still decides
        method.heads.bias[3:5] = -100
    features = infer_all(method, stage.tokens).features
    chosen = (features @ method.heads.weight[5:].T + method.heads.bias[5:]).argmax(dim=1)
    assert len(chosen.unique()) == 2
    method.end_stage(stage, seeded())
    for label in range(2):
        mine = features[chosen == label].detach().numpy()
        np.testing.assert_allclose(method.gaussians.means[3 + label], mine.mean(0), atol=1e-6)
        np.testing.assert_allclose(method.gaussians.variances[3 + label], mine.var(0), atol=1e-6)


def test_one_spread_is_the_mean_standard_deviation() -> None:
    memory = ClassGaussians(2)
    memory.means = torch.tensor([[1.0, 2.0], [-1.0, 0.0]])
    memory.variances = torch.tensor([[0.01, 1.0], [9.0, 0.25]])
    features, classes = memory.sample(20_000, seeded(), one_spread=True)
    for label in range(2):
        np.testing.assert_allclose(features[classes == label].std(dim=0), [1.55, 0.75], rtol=0.03)


# -- as a whole --------------------------------------------------------------------------------


def test_planted_new_classes_are_found_where_a_stage_has_nothing_else() -> None:
    # The paper's own setting. Few images and epochs: heavier pseudo-labels, softer heads.
    stage = next_stage({3: 20, 4: 20, 5: 20}, num_new=3, epochs=40)
    found = []
    for seed in range(3):
        method = make(pseudo_label_weight=1.0, temperature=0.3)
        learn(method, base_stage(epochs=30), seed)
        learn(method, stage, seed)
        found.append(matched_accuracy(method, stage))
    assert np.mean(found) > 0.8
