"""The two objectives of GOAL equal their formulas, term by term."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from goal.methods.base import LabelledBatch
from goal.testing.planted import base_stage, next_stage, tail_of
from goal.testing.teaching import learn
from tests.methods.goal_helpers import batch_of, begun, goal, numbers


def cross_entropy(logits: Any, target: Any) -> float:
    """Mean over rows of ``-sum_k target_k log softmax(logits)_k``, one row at a time."""
    total = 0.0
    for row, wanted in zip(logits, target, strict=True):
        shares = np.exp(row) / np.exp(row).sum()
        total -= float((wanted * np.log(shares)).sum())
    return total / len(logits)


def contrast(embeddings: Any, positives: list[list[int]], temperature: float) -> float:
    """Mean over rows and their positives of ``-log`` the positive's share of all others."""
    total = 0.0
    for i, mates in enumerate(positives):
        others = [j for j in range(len(embeddings)) if j != i]
        weight = {j: math.exp(float(embeddings[i] @ embeddings[j]) / temperature) for j in others}
        terms = [-math.log(weight[j] / sum(weight.values())) for j in mates]
        total += sum(terms) / len(terms)
    return total / len(embeddings)


def test_the_base_objective_is_alignment_both_contrasts_and_cross_entropy() -> None:
    method = goal(sup_con_weight=0.35, base_alignment_weight=2.0)
    stage = base_stage()
    method.begin_stage(stage, torch.Generator().manual_seed(0))
    plain = batch_of(stage)
    labels = stage.labels[:6]
    batch = LabelledBatch(plain.first, plain.second, plain.positions, labels)
    terms = method.losses(batch, torch.Generator())
    views = method.see(batch)
    z, scores, both = numbers(views.embeddings), numbers(views.scores), labels.tolist() * 2
    vertices = numbers(method.ledger.vertices)
    partner = [[(i + 6) % 12] for i in range(12)]
    mates = [[j for j in range(12) if j != i and both[j] == both[i]] for i in range(12)]
    expected = {
        "contrast": 0.65 * contrast(z, partner, 1.0),
        "sup_contrast": 0.35 * contrast(z, mates, 0.07),
        "classification": cross_entropy(scores / 0.1, np.eye(3)[both]),
        "alignment": -2.0 * float(np.mean([z[i] @ vertices[both[i]] for i in range(12)])),
    }
    assert {key: term.item() for key, term in terms.items()} == pytest.approx(expected, rel=1e-4)


def test_the_incremental_objective_aligns_only_samples_with_a_slot() -> None:
    method, stage = begun(alignment_weight=0.5, replay_weight=0.0, distillation_weight=3.0)
    with torch.no_grad():
        tail_of(method).out.bias.add_(0.2)  # away from the teacher
    method.slots[1], method.slots[4] = 5, 3
    batch = batch_of(stage)
    terms = method.losses(batch, torch.Generator())
    views = method.see(batch)
    z, scores, vertices = (
        numbers(part) for part in (views.embeddings, views.scores, method.ledger.vertices)
    )
    shares = np.exp(scores / 0.1) / np.exp(scores / 0.1).sum(axis=1, keepdims=True)
    sharp = np.exp(scores / 0.05) / np.exp(scores / 0.05).sum(axis=1, keepdims=True)
    mean = shares.mean(axis=0)
    known, new = mean[:3], mean[3:]

    def entropy(p: Any) -> float:
        return -float((p * np.log(p)).sum())

    mixed = entropy(np.array([known.sum(), new.sum()]))
    mixed += entropy(known / known.sum()) + entropy(new / new.sum())
    pulled = [(1, 5), (4, 3), (7, 5), (10, 3)]  # rows of both views, and their vertices
    before = numbers(method.previous_features(batch))
    moved = np.square(numbers(views.features) - before).sum(axis=1).mean()
    expected = {
        "self_distillation": cross_entropy(scores / 0.1, np.roll(sharp, 6, axis=0)),
        "entropy": -mixed,
        "contrast": contrast(z, [[(i + 6) % 12] for i in range(12)], 1.0),
        "alignment": -0.5 * float(np.mean([z[row] @ vertices[slot] for row, slot in pulled])),
        "distillation": 3.0 * float(moved),
    }
    assert {key: term.item() for key, term in terms.items()} == pytest.approx(expected, rel=1e-4)


def test_without_a_confident_sample_in_the_batch_there_is_no_alignment() -> None:
    method, stage = begun()
    assert "alignment" not in method.losses(batch_of(stage), torch.Generator().manual_seed(0))


def test_the_literal_preset_has_nothing_of_happys() -> None:
    method = goal("goal-literal")
    stage = next_stage()
    learn(method, base_stage())
    method.begin_stage(stage, torch.Generator().manual_seed(0))
    batch = batch_of(stage)
    terms = method.losses(batch, torch.Generator())
    assert set(terms) == {"self_distillation", "entropy", "contrast"}
    mean = numbers(method.probabilities(method.see(batch).scores)).mean(axis=0)
    assert terms["entropy"].item() == pytest.approx(float((mean * np.log(mean)).sum()), rel=1e-4)
