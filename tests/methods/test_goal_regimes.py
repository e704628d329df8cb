"""Readings of GOAL beside the default: what each computes, against a slow re-implementation."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from goal.common.errors import GoalError
from goal.methods.base import LabelledBatch, infer_all
from goal.methods.goal import Goal, GoalSettings
from goal.methods.happy import Happy
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import learn
from tests.methods.goal_helpers import batch_of, begun, goal, numbers

ONE_SPACE: dict[str, Any] = {"vertex_space": "backbone", "heads": "vertices", "warmup_epochs": 0}


def labelled_batch() -> LabelledBatch:
    stage = base_stage()
    plain = batch_of(stage)
    return LabelledBatch(plain.first, plain.second, plain.positions, stage.labels[:6])


def softmax(logits: Any) -> Any:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def twins(epoch: int) -> tuple[Goal, Happy]:
    """GOAL with Happy's stage 0, and Happy, with the same weights, in an epoch of stage 0."""
    ours, theirs = goal(base_form="happy"), small_method("happy")
    assert isinstance(theirs, Happy)
    for method in (ours, theirs):
        method.begin_stage(base_stage(), torch.Generator().manual_seed(0))
        method.begin_epoch(base_stage(), epoch, torch.Generator())
    theirs.tail.load_state_dict(ours.tail.state_dict())
    theirs.projector.load_state_dict(ours.projector.state_dict())
    theirs.classifier.load_state_dict(ours.classifier.state_dict())
    return ours, theirs


@pytest.mark.parametrize("epoch", [0, 12, 29, 80])
def test_happys_stage_0_is_happys_with_alignment_added(epoch: int) -> None:
    ours, theirs = twins(epoch)
    batch, rng = labelled_batch(), torch.Generator()
    found = {key: term.item() for key, term in ours.losses(batch, rng).items()}
    expected = {key: term.item() for key, term in theirs.losses(batch, rng).items()}
    aligned = found.pop("alignment")
    assert found == pytest.approx(expected, rel=1e-6)
    views = ours.see(batch)
    vertices, z = numbers(ours.ledger.vertices), numbers(views.embeddings)
    both = batch.labels.tolist() * 2
    assert aligned == pytest.approx(-np.mean([z[i] @ vertices[both[i]] for i in range(12)]))


def test_happys_weights_and_cooling_teacher_by_hand() -> None:
    method, _ = twins(epoch=10)
    batch = labelled_batch()
    terms = method.losses(batch, torch.Generator())
    scores, both = numbers(method.see(batch).scores), batch.labels.tolist() * 2
    shares = softmax(scores / 0.1)
    teacher = softmax(scores / (0.07 - 0.03 * 10 / 29))
    labelled = -np.mean([math.log(shares[i, both[i]]) for i in range(12)])
    distilled = -np.mean([(teacher[(i + 6) % 12] * np.log(shares[i])).sum() for i in range(12)])
    mean = shares.mean(axis=0)
    assert terms["classification"].item() == pytest.approx(0.35 * labelled, rel=1e-5)
    assert terms["self_distillation"].item() == pytest.approx(0.65 * distilled, rel=1e-5)
    assert terms["entropy"].item() == pytest.approx(0.65 * (mean * np.log(mean)).sum(), rel=1e-5)


def test_after_happys_stage_0_goals_own_temperature_holds() -> None:
    method, _ = begun(base_form="happy")
    assert method.only_full_batches and not goal().only_full_batches
    assert method.target_temperature() == method.settings.teacher_temperature == 0.05


def test_base_heads_start_at_their_vertices_and_then_learn() -> None:
    method = goal(**ONE_SPACE)
    method.begin_stage(base_stage(), torch.Generator().manual_seed(0))
    vertices = method.ledger.vertices[:3].clone()
    assert torch.equal(method.classifier.weight.detach(), vertices)
    method = goal(**ONE_SPACE)
    learn(method, base_stage())
    assert not torch.allclose(method.classifier.weight.detach(), vertices)


def test_new_heads_are_their_vertices_once_claimed_while_known_heads_are_free() -> None:
    method, stage = begun(**ONE_SPACE)
    centroids = method.classifier.weight.detach()[3:].clone()
    method.losses(batch_of(stage), torch.Generator().manual_seed(0))
    assert torch.equal(method.classifier.weight.detach()[3:], centroids)
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    with torch.no_grad():
        method.classifier.weight.add_(0.3)  # as an optimiser's step may
    known = method.classifier.weight.detach()[:3].clone()
    views_before = method.losses(batch_of(stage), torch.Generator().manual_seed(0))
    vertex = {int(owner): row for row, owner in enumerate(method.ledger.owners.tolist())}
    for label in (3, 4):
        expected = method.ledger.vertices[vertex[label]]
        assert torch.equal(method.classifier.weight.detach()[label], expected)
    assert torch.equal(method.classifier.weight.detach()[:3], known)
    assert "alignment" in views_before
    scores = method.see(batch_of(stage)).scores
    features = numbers(method.see(batch_of(stage)).features)
    assert numbers(scores)[:, 3] == pytest.approx(
        features @ numbers(method.ledger.vertices[vertex[3]]), abs=1e-5
    )


def test_one_space_ends_with_heads_on_vertices_and_clusters_on_features() -> None:
    method = goal(**ONE_SPACE)
    learn(method, base_stage())
    learn(method, next_stage())
    assert torch.equal(method.classifier.weight.detach()[3:], method.directions()[3:])
    outputs = infer_all(method, next_stage().tokens)
    assert outputs.embeddings is not None and torch.equal(outputs.embeddings, outputs.features)


def test_without_unsupervised_alignment_new_heads_stay_free() -> None:
    method = goal(**ONE_SPACE, unsupervised_alignment=False)
    learn(method, base_stage())
    learn(method, next_stage())
    assert not torch.allclose(method.classifier.weight.detach()[3:], method.directions()[3:])


def test_alignment_as_the_only_retention() -> None:
    """Nothing of the past but the vertices: known samples are pulled to the ones they own."""
    method, stage = begun(
        distillation_weight=0.0, replay_weight=0.0, align_known=True, warmup_epochs=0, alpha=1.0
    )
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    batch = batch_of(stage, count=12)
    terms = method.losses(batch, torch.Generator().manual_seed(0))
    assert set(terms) == {"self_distillation", "entropy", "contrast", "alignment"}
    outputs = infer_all(method, stage.tokens)
    assert outputs.scores is not None
    predicted = outputs.scores.argmax(dim=1)
    owner = method.ledger.owners.tolist()
    z = numbers(method.see(batch).embeddings)
    pulled = []
    for position in range(12):
        slot = int(method.slots[position])
        assert slot != UNOWNED  # alpha is 1: every sample is confident
        if int(predicted[position]) < 3:
            assert owner[slot] == int(predicted[position])
        vertex = numbers(method.ledger.vertices[slot])
        pulled += [z[position] @ vertex, z[position + 12] @ vertex]
    assert any(int(predicted[position]) < 3 for position in range(12))
    assert terms["alignment"].item() == pytest.approx(-0.7 * np.mean(pulled), rel=1e-4)


def test_cross_entropy_over_owned_vertices() -> None:
    method, stage = begun(confident_loss="cross_entropy", alignment_weight=0.5)
    method.ledger.claim(torch.tensor([3, 4]), torch.tensor([5, 3]))  # vertex 4 stays free
    method.slots[1], method.slots[4] = 5, 3
    batch = batch_of(stage)
    term = method.losses(batch, torch.Generator().manual_seed(0))["alignment"]
    z, vertices = numbers(method.see(batch).embeddings), numbers(method.ledger.vertices)
    losses = []
    for row, slot in [(1, 5), (4, 3), (7, 5), (10, 3)]:
        weight = {k: math.exp(float(z[row] @ vertices[k]) / 0.1) for k in (0, 1, 2, 3, 5)}
        losses.append(-math.log(weight[slot] / sum(weight.values())))
    assert term.item() == pytest.approx(0.5 * np.mean(losses), rel=1e-4)


def test_predicting_with_both_is_the_mean_of_two_posteriors() -> None:
    method = goal(predict_with="both", confident_loss="cross_entropy", warmup_epochs=0)
    learn(method, base_stage())
    learn(method, next_stage())
    outputs = infer_all(method, next_stage().tokens)
    assert outputs.scores is not None and outputs.embeddings is not None
    heads = numbers(method.classifier.weight)
    heads = heads / np.linalg.norm(heads, axis=1, keepdims=True)
    by_head = softmax(numbers(outputs.features) @ heads.T / 0.1)
    by_vertex = softmax(numbers(outputs.embeddings) @ numbers(method.directions()).T / 0.1)
    assert np.allclose(numbers(outputs.scores), (by_head + by_vertex) / 2, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": "vertices"}, "heads=vertices needs classifier and vertices in one space"),
        (
            {"base_form": "happy", "base_self_distillation": True},
            "base_form=happy has self-distillation already",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GoalError, match=message):
        GoalSettings.parse({"name": "goal", **settings})
