"""Happy's two objectives term by term, its ablation, and what it remembers."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor

from goal.learning.shared_base import base_settings, trained_parameters
from goal.losses.contrastive import info_nce, sup_con
from goal.losses.replay import sample_prototypes
from goal.methods.base import LabelledBatch, Stage, infer_all
from goal.methods.happy import ABLATION, Happy, HappySettings
from goal.methods.simgcd import SimGCD
from goal.testing.planted import (
    CLASSES,
    SMALL,
    PlantedTokens,
    base_stage,
    next_stage,
    small_tail,
)
from goal.testing.teaching import learn
from tests.methods.test_simgcd import assert_terms, batch_of, cross_distillation, seeded
from tests.methods.test_simgcd import make as make_simgcd


def make(**overrides: Any) -> Happy:
    settings = HappySettings.parse({"name": "happy", **SMALL, **overrides})
    return Happy.build(settings, small_tail(), CLASSES, seeded()).eval()


def begun(stage: Stage, **overrides: Any) -> Happy:
    """A method that has learned stage 0 and begun the next."""
    method = make(**overrides)
    learn(method, base_stage())
    method.begin_stage(stage, seeded())
    return method


def probabilities(scores: Tensor, temperature: float) -> Any:
    return softmax(scores.detach().double().numpy() / temperature, axis=1)


def shannon(values: Any) -> float:
    return float(-(values * np.log(values)).sum())


def test_base_objective() -> None:
    method, stage = make(), base_stage()
    method.begin_stage(stage, seeded())
    method.begin_epoch(stage, 40, seeded())
    batch = batch_of(stage)
    assert isinstance(batch, LabelledBatch)
    views = method.see(batch)
    first, second = views.embeddings.chunk(2)
    picked = F.cross_entropy(views.scores / 0.1, torch.cat([batch.labels, batch.labels]))
    expected = {
        "self_distillation": 0.65 * cross_distillation(views.scores, 0.04),
        "entropy": -0.65 * shannon(probabilities(views.scores, 0.1).mean(axis=0)),
        "classification": 0.35 * picked.item(),
        "contrast": 0.65 * info_nce(first, second, 1.0).item(),
        "sup_contrast": 0.35 * sup_con(first, second, batch.labels, 0.07).item(),
    }
    assert_terms(method.losses(batch, seeded()), expected)


def test_incremental_objective() -> None:
    stage = next_stage()
    method = begun(stage)
    with torch.no_grad():  # so that distillation has something to hold on to
        method.tail.out.bias.add_(0.3 * torch.randn(method.tail.width, generator=seeded(2)))
    batch = batch_of(stage)
    views = method.see(batch)
    first, second = views.embeddings.chunk(2)
    mean = probabilities(views.scores, 0.1).mean(axis=0)
    masses = np.array([mean[:3].sum(), mean[3:].sum()])
    grouped = shannon(masses) + shannon(mean[:3] / masses[0]) + shannon(mean[3:] / masses[1])
    replayed, classes = sample_prototypes(
        method.prototypes, method.radius, 2 * len(batch), 0.1, seeded(7)
    )
    cosines = F.normalize(replayed, dim=1) @ F.normalize(method.classifier.weight, dim=1).T
    before = [F.normalize(method.teacher(view), dim=1) for view in (batch.first, batch.second)]
    distance = (views.features - torch.cat(before)).norm(dim=1).square().mean()
    expected = {
        "self_distillation": cross_distillation(views.scores, 0.05),
        "entropy": -grouped,
        "contrast": info_nce(first, second, 1.0).item(),
        "replay": F.cross_entropy(cosines / 0.1, classes).item(),
        "distillation": distance.item(),
    }
    assert expected["distillation"] > 1e-3
    assert_terms(method.losses(batch, seeded(7)), expected)


def test_stage_0_is_simgcds_so_that_runs_may_share_it() -> None:
    happy, other = make(entropy_weight=2.0), make_simgcd()
    for method in (happy, other):
        learn(method, base_stage())
    assert base_settings(Happy, happy.settings) == base_settings(SimGCD, other.settings)
    for key, weight in trained_parameters(happy).items():
        assert torch.equal(weight, trained_parameters(other)[key]), key


def test_distillation_is_zero_until_the_tail_moves() -> None:
    stage = next_stage()
    assert begun(stage).losses(batch_of(stage), seeded())["distillation"].item() == 0


def test_the_teacher_cools_at_stage_0_and_stays_put_afterwards() -> None:
    method, stage = make(), base_stage()
    method.begin_stage(stage, seeded())
    for epoch, temperature in ((0, 0.07), (29, 0.04), (99, 0.04)):
        method.begin_epoch(stage, epoch, seeded())
        assert method.target_temperature() == pytest.approx(temperature)
        assert int(method.state_dict()["epoch"]) == epoch
    method.end_stage(stage, seeded())
    method.begin_stage(next_stage(), seeded())
    for epoch in (0, 29, 99):
        method.begin_epoch(next_stage(), epoch, seeded())
        assert method.target_temperature() == 0.05


ALWAYS = {"self_distillation", "contrast"}
ROWS = {
    "self-training": ALWAYS,
    "+ entropy and init": ALWAYS | {"entropy"},
    "+ replay": ALWAYS | {"entropy", "replay"},
    "+ distillation": ALWAYS | {"entropy", "replay", "distillation"},
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_ablation_adds_its_terms_and_leaves_stage_0_alone(row: str) -> None:
    assert ABLATION.keys() == ROWS.keys()
    stage = next_stage()
    method = begun(stage, **ABLATION[row])
    assert method.losses(batch_of(stage), seeded()).keys() == ROWS[row]
    whole, part = make(), make(**ABLATION[row])
    for each in (whole, part):
        learn(each, base_stage())
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, part.state_dict()[key]), key


def test_weights_scale_their_terms() -> None:
    stage = next_stage()
    names = {
        "group_entropy_weight": "entropy",
        "replay_weight": "replay",
        "distillation_weight": "distillation",
    }
    plain = begun(stage)
    scaled = begun(stage, **dict.fromkeys(names, 3.0))
    for method in (plain, scaled):
        with torch.no_grad():
            method.tail.out.bias[0] += 1
    ours, theirs = (m.losses(batch_of(stage), seeded()) for m in (scaled, plain))
    for name, term in ours.items():
        factor = 3 if name in names.values() else 1
        assert term.item() == pytest.approx(factor * theirs[name].item(), rel=1e-5), name


def test_new_heads_come_from_the_images_unless_they_are_random() -> None:
    for start in ("farthest", "novelty", "random"):
        heads = [
            begun(next_stage(counts), head_init=start).classifier.weight[3:]
            for counts in ({3: 9, 4: 9}, {0: 9, 1: 9, 5: 9})
        ]
        assert torch.equal(heads[0], heads[1]) == (start == "random")


def test_prototypes_of_known_classes_never_move_and_new_ones_follow_predictions() -> None:
    method, stage = make(), next_stage(epochs=10)
    learn(method, base_stage(epochs=10))
    labels, base = base_stage().labels, infer_all(method, base_stage().tokens).features
    for label in range(3):
        torch.testing.assert_close(method.prototypes[label], base[labels == label].mean(dim=0))
    before, radius = method.prototypes.clone(), method.radius.clone()
    learn(method, stage)
    assert torch.equal(method.prototypes[:3], before) and torch.equal(method.radius, radius)
    outputs = infer_all(method, stage.tokens)
    predicted = method.predict(outputs)
    for label in (3, 4):
        assert bool((predicted == label).any())
        mean = outputs.features[predicted == label].mean(dim=0)
        torch.testing.assert_close(method.prototypes[label], mean)


def test_the_whole_method_finds_new_classes_where_self_training_finds_none() -> None:
    found = PlantedTokens(next_stage().tokens.classes, seed=1, noise=0.05)  # type: ignore[attr-defined]
    base = PlantedTokens(base_stage().labels, noise=0.05)
    for row, low, high in (("self-training", 0.0, 0.1), ("+ distillation", 0.4, 1.0)):
        method = make(head_length=1.0, **ABLATION[row])  # a high rate, so slow heads
        learn(method, dataclasses.replace(base_stage(epochs=20), tokens=base))
        learn(method, dataclasses.replace(next_stage(epochs=20), tokens=found))
        assert torch.equal(method.predict(infer_all(method, base)), base.classes)
        called_new = method.predict(infer_all(method, found))[found.classes >= 3] >= 3
        assert low <= called_new.float().mean() <= high, row
