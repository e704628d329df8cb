"""Every reading of the GOAL paper learns its stages, and does what it says."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from goal.common.errors import GoalError
from goal.evaluation.metrics import match, score_stage
from goal.methods.base import LabelledStage, Stage, infer_all
from goal.methods.goal import Goal
from goal.methods.registry import METHODS
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import WIDTH, PlantedTokens, base_stage, next_stage, planted_classes
from goal.testing.teaching import TEST, learn
from tests.methods.goal_helpers import batch_of, begun, goal, numbers

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
    "Happy's stage 0": {"base_form": "happy"},
    "one space": {"vertex_space": "backbone", "heads": "vertices"},
    "one space on the projector": {"classifier_space": "projector", "heads": "vertices"},
    "cross-entropy over vertices": {"confident_loss": "cross_entropy", "predict_with": "both"},
    "alignment as the only retention": {
        "distillation_weight": 0.0,
        "replay_weight": 0.0,
        "align_known": True,
    },
    "entropy over all classes": {"entropy_form": "global"},
    "by vertices": {"predict_with": "vertices"},
    "by both": {"predict_with": "both"},
}


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
