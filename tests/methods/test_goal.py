"""GOAL: its two objectives term by term, the confident set, and who owns which vertex."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goal.common.errors import GoalError
from goal.evaluation.metrics import match, score_stage
from goal.methods.base import Batch, LabelledBatch, LabelledStage, Stage, infer_all
from goal.methods.goal import Goal
from goal.methods.registry import METHODS
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import (
    WIDTH,
    PlantedTokens,
    base_stage,
    next_stage,
    planted_classes,
    small_method,
)
from goal.testing.teaching import TEST, learn

READINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "vertices on the feature": {"vertex_space": "backbone"},
    "classifier on the projector": {"classifier_space": "projector"},
    "global confident set": {"confidence": "global"},
    "clusters by prediction": {"clusters": "by_prediction"},
    "greedy matching": {"matching": "greedy"},
    "known samples aligned": {"align_known": True},
    "base classes matched": {"base_assignment": "hungarian"},
    "self-distillation at stage 0": {"base_self_distillation": True},
    "entropy over all classes": {"entropy_form": "global"},
    "by vertices": {"predict_with": "vertices"},
    "by both": {"predict_with": "both"},
}


def goal(name: str = "goal", **settings: Any) -> Goal:
    method = small_method(name, **settings)
    assert isinstance(method, Goal)
    return method


def begun(**settings: Any) -> tuple[Goal, Stage]:
    """GOAL after stage 0, at the beginning of the next."""
    method, stage = goal(**settings), next_stage()
    learn(method, base_stage())
    method.begin_stage(stage, torch.Generator().manual_seed(0))
    return method, stage


def batch_of(stage: Stage, count: int = 6) -> Batch:
    positions = torch.arange(count)
    return Batch(*stage.tokens.pair(positions, torch.Generator().manual_seed(0)), positions)


def numbers(tensor: Tensor) -> Any:
    return tensor.detach().double().numpy()


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


# -- the objectives --------------------------------------------------------------------------------


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
        method.tail.out.bias.add_(0.2)  # away from the teacher
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


# -- the confident set -----------------------------------------------------------------------------


def certainty(winner: int, top: float) -> list[float]:
    """A prediction over five classes whose entropy falls as `top` rises."""
    return [top if label == winner else (1 - top) / 4 for label in range(5)]


PREDICTIONS = torch.tensor(
    [
        certainty(0, 0.99),  # known, the surest of all
        certainty(3, 0.6),
        certainty(3, 0.9),
        certainty(4, 0.5),
        certainty(3, 0.7),
        certainty(4, 0.4),
        certainty(3, 0.8),
    ]
)


@pytest.mark.parametrize(
    ("confidence", "alpha", "expected"),
    [
        ("per_class", 0.5, {2, 6, 3}),  # two of the four of class 3, one of the two of class 4
        ("per_class", 0.1, {2, 3}),  # never less than one
        ("per_class", 1.0, {1, 2, 3, 4, 5, 6}),
        ("global", 0.5, {0, 2, 6}),  # three of all seven, the known one among them
    ],
)
def test_confident_samples_have_the_lowest_entropy(
    confidence: str, alpha: float, expected: set[int]
) -> None:
    method = goal(confidence=confidence, alpha=alpha)
    assert set(method._confident(PREDICTIONS, num_known=3).tolist()) == expected


def refreshed_at(method: Goal, stage: Stage, epochs: int) -> list[int]:
    """Epochs at whose beginning the slots are chosen anew."""
    chosen = []
    for epoch in range(epochs):
        method.slots.fill_(UNOWNED)
        method.begin_epoch(stage, epoch, torch.Generator().manual_seed(0))
        if bool((method.slots != UNOWNED).any()):
            chosen.append(epoch)
    return chosen


def test_refreshes_come_after_the_warm_up_and_only_where_they_are_wanted() -> None:
    method, stage = begun(warmup_epochs=2, refresh_every=5)
    assert refreshed_at(method, stage, 13) == [2, 7, 12]
    off, stage = begun(unsupervised_alignment=False, warmup_epochs=0)
    assert refreshed_at(off, stage, 3) == []
    assert refreshed_at(goal(warmup_epochs=0), base_stage(), 3) == []


def test_a_refresh_gives_new_samples_new_vertices_and_known_ones_their_own() -> None:
    method, stage = begun(warmup_epochs=0, align_known=True)
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    predicted = method.predict(infer_all(method, stage.tokens))
    owners = method.ledger.owners[method.slots]
    chosen = method.slots != UNOWNED
    known = chosen & (predicted < 3)
    new = chosen & (predicted >= 3)
    assert bool(known.any()) and bool(new.any())
    assert torch.equal(owners[known], predicted[known])
    assert bool((owners[new] >= 3).all())
    without, stage = begun(warmup_epochs=0)
    without.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    assert not bool((known & (without.slots != UNOWNED)).any())


def test_vertices_are_claimed_once_and_later_refreshes_only_rename_clusters() -> None:
    method, stage = begun(warmup_epochs=0)
    method.begin_epoch(stage, 0, torch.Generator().manual_seed(0))
    owners = method.ledger.owners.clone()
    assert sorted(owners[owners != UNOWNED].tolist()) == [0, 1, 2, 3, 4]
    assert owners[:3].tolist() == [0, 1, 2]
    slots = method.slots.clone()
    with torch.no_grad():  # the two new heads change places
        method.classifier.weight[3:] = method.classifier.weight[3:].flip(0)
    method.begin_epoch(stage, 5, torch.Generator().manual_seed(0))
    assert torch.equal(method.ledger.owners, owners)
    both = (slots != UNOWNED) & (method.slots != UNOWNED)
    assert bool(both.any()) and not bool((slots[both] == method.slots[both]).any())


def test_clusters_are_named_after_the_class_they_overlap_with_most() -> None:
    method = goal()
    # k-means from the means of the predicted classes, 5 and 2.25: the first takes 20 and the sixes.
    points = torch.tensor([[0.0], [0.0], [0.0], [20.0], [6.0], [6.0], [6.0], [-9.0]])
    probabilities = torch.zeros(8, 5)
    probabilities[:4, 3] = probabilities[4:, 4] = 1.0
    stage = next_stage()
    clusters = method._cluster(points, probabilities, stage, torch.Generator().manual_seed(0))
    assert clusters.tolist() == [0, 0, 0, 1, 1, 1, 1, 0]


def test_new_classes_own_a_vertex_after_a_stage_without_any_confident_set() -> None:
    method, stage = goal(unsupervised_alignment=False), next_stage()
    learn(method, base_stage())
    learn(method, stage)
    assert (method.ledger.vertex_of(torch.arange(5)) != UNOWNED).all()


# -- readings --------------------------------------------------------------------------------------


def planted(counts: dict[int, int], seed: int) -> PlantedTokens:
    return PlantedTokens(planted_classes(counts), seed=seed, noise=0.1)


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_goes_through_its_stages_and_gives_each_class_one_vertex(
    reading: str,
) -> None:
    method = goal(warmup_epochs=0, refresh_every=2, **READINGS[reading])
    learn(method, base_stage())
    before = method.ledger.vertex_of(torch.arange(3))
    learn(method, next_stage())
    vertices = method.ledger.vertex_of(torch.arange(5))
    assert torch.equal(vertices[:3], before)
    assert len(set(vertices.tolist()) - {UNOWNED}) == 5
    assert all(bool(torch.isfinite(tensor).all()) for tensor in method.state_dict().values())
    outputs = infer_all(method, TEST)
    assert outputs.scores is not None and outputs.scores.shape == (len(TEST), 5)


@pytest.mark.parametrize(
    "reading",
    ["default", "global confident set", "clusters by prediction", "known samples aligned"],
)
def test_planted_classes_are_found_and_none_is_forgotten(reading: str) -> None:
    method = goal(warmup_epochs=1, refresh_every=2, **READINGS[reading])
    tokens = planted({0: 30, 1: 30, 2: 30}, seed=0)
    learn(method, LabelledStage(0, 0, 3, 5, tokens, tokens.classes))
    learn(method, Stage(1, 3, 2, 20, planted({0: 8, 1: 8, 2: 8, 3: 30, 4: 30}, seed=1)))
    test = planted(dict.fromkeys(range(5), 8), seed=7)
    predicted = method.predict(infer_all(method, test)).numpy()
    truth = test.classes.numpy()
    score = score_stage(1, predicted, truth, match(predicted, truth, 5, 5), 3, 3)
    assert score.base >= 80 and score.unseen is not None and score.unseen >= 80


def gradients(method: Goal, stage: Stage) -> tuple[bool, bool]:
    """Whether the alignment alone moves the tail, and whether it moves the projector."""
    method.slots.fill_(4)
    method.zero_grad()
    method.losses(batch_of(stage), torch.Generator().manual_seed(0))["alignment"].backward()
    moved = [
        any(p.grad is not None and bool(p.grad.any()) for p in part.parameters())
        for part in (method.tail, method.projector)
    ]
    return moved[0], moved[1]


def test_vertices_on_the_feature_leave_the_projector_to_the_contrast() -> None:
    method, stage = begun(vertex_space="backbone")
    assert method.ledger.vertices.shape[1] == WIDTH
    outputs = infer_all(method, stage.tokens)
    assert outputs.embeddings is not None and torch.equal(outputs.embeddings, outputs.features)
    assert gradients(method, stage) == (True, False)
    usual, stage = begun()
    assert usual.ledger.vertices.shape[1] == 8
    assert gradients(usual, stage) == (True, True)


def test_a_classifier_on_the_projector_cannot_have_vertices_on_the_feature() -> None:
    settings = METHODS["goal"].method.Settings
    with pytest.raises(GoalError, match="leave classifier_space out"):
        settings.parse(
            {"name": "goal", "vertex_space": "backbone", "classifier_space": "projector"}
        )


def test_vertices_decide_only_once_all_classes_own_one() -> None:
    method, stage = begun(predict_with="vertices")
    by_classifier = copy.deepcopy(method)
    by_classifier.settings = method.settings.model_copy(update={"predict_with": "classifier"})
    during, plain = (infer_all(one, stage.tokens) for one in (method, by_classifier))
    assert during.scores is not None and plain.scores is not None
    assert torch.equal(during.scores, plain.scores)
    method.end_stage(stage, torch.Generator().manual_seed(0))
    outputs = infer_all(method, stage.tokens)
    assert outputs.embeddings is not None and outputs.scores is not None
    expected = numbers(outputs.embeddings) @ numbers(method.directions()).T
    assert np.allclose(numbers(outputs.scores), expected, atol=1e-6)
