"""DYDM: the memory equals ridge regression on everything at once, and nothing can move it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from torch import Tensor

from goal.learning.shared_base import base_settings
from goal.methods.base import Batch, LabelledBatch, Stage, infer_all
from goal.methods.dydm import DYDM, DYDMSettings
from goal.methods.happy import Discovering, Happy, HappySettings
from goal.methods.parts.ridge_memory import RidgeMemory
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail
from goal.testing.teaching import TEST, learn
from tests.methods.test_frost import matched_accuracy, seeded

GAMMA = 0.1
Array = npt.NDArray[np.float64]


def make(**overrides: Any) -> DYDM:
    sizes = {**SMALL, "memory_width": 40}
    given_settings = DYDMSettings.parse({"name": "dydm", **sizes, **overrides})
    return DYDM.build(given_settings, small_tail(), CLASSES, seeded()).eval()


def ridge(projection: Tensor, features: Tensor, classes: Tensor, count: int) -> Array:
    """The closed form, from all samples at once."""
    expanded = np.maximum(features.double().numpy() @ projection.numpy(), 0)
    targets = np.eye(count)[classes.numpy()]
    gram = expanded.T @ expanded + GAMMA * np.eye(expanded.shape[1])
    return np.asarray(np.linalg.solve(gram, expanded.T @ targets))


# -- the memory alone -------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=5), st.integers(0, 99))
def test_learning_in_parts_is_ridge_regression_on_all_data_at_once(
    parts: list[int], seed: int
) -> None:
    rng = seeded(seed)
    memory = RidgeMemory(6, 30, GAMMA, rng)
    features, classes = torch.empty(0, 6), torch.empty(0, dtype=torch.int64)
    for stage, size in enumerate(parts):
        new = torch.randn(size, 6, generator=rng)
        labels = torch.randint(2, (size,), generator=rng) + 2 * stage  # two new classes each time
        memory.learn(new, labels, 2 * stage + 2)
        features, classes = torch.cat([features, new]), torch.cat([classes, labels])
    expected = ridge(memory.projection, features, classes, 2 * len(parts))
    np.testing.assert_allclose(memory.solution.numpy(), expected, rtol=1e-7, atol=1e-9)
    assert memory.num_classes == 2 * len(parts)


def test_many_samples_are_taken_in_by_batches() -> None:
    memory = RidgeMemory(5, 20, GAMMA, seeded())
    features = torch.randn(1300, 5, generator=seeded(1))
    classes = torch.randint(4, (1300,), generator=seeded(2))
    memory.learn(features, classes, 4)
    expected = ridge(memory.projection, features, classes, 4)
    np.testing.assert_allclose(memory.solution.numpy(), expected, rtol=1e-7, atol=1e-10)
    expanded = np.maximum(TEST_POINTS.double().numpy() @ memory.projection.numpy(), 0)
    np.testing.assert_allclose(memory(TEST_POINTS), expanded @ expected, atol=1e-6)
    assert memory(TEST_POINTS).dtype == TEST_POINTS.dtype


TEST_POINTS = torch.randn(7, 5, generator=seeded(9))


def test_room_without_samples_scores_zero_and_moves_nothing() -> None:
    memory = RidgeMemory(5, 20, GAMMA, seeded())
    memory.learn(torch.randn(30, 5, generator=seeded(1)), torch.arange(30) % 3, 3)
    before = memory(TEST_POINTS)
    memory.learn(torch.empty(0, 5), torch.empty(0, dtype=torch.int64), 5)
    after = memory(TEST_POINTS)
    assert torch.equal(after[:, :3], before)
    assert after[:, 3:].abs().max() == 0


# -- the method -------------------------------------------------------------------------------


def test_the_memory_is_ridge_on_labels_and_then_on_what_the_discovery_branch_calls_new() -> None:
    method, base, stage = make(), base_stage(), next_stage()
    learn(method, base)
    features, classes = infer_all(method, base.tokens).features, base.labels
    learn(method, stage)
    stable = torch.cat([features, anchored(method, stage)])
    named = branch_scores(method, stage).argmax(dim=1)
    labels = torch.cat([classes, named])
    kept = torch.cat([torch.ones(len(classes), dtype=torch.bool), named >= 3])
    expected = ridge(method.memory.projection, stable[kept], labels[kept], 5)
    np.testing.assert_allclose(method.memory.solution.numpy(), expected, rtol=1e-4, atol=1e-5)


def anchored(method: DYDM, stage: Stage) -> Tensor:
    with torch.no_grad():
        everything = stage.tokens.clean(torch.arange(len(stage.tokens)))
        return F.normalize(method.anchor(everything), dim=1)


def branch_scores(method: DYDM, stage: Stage) -> Tensor:
    with torch.no_grad():
        everything = stage.tokens.clean(torch.arange(len(stage.tokens)))
        scores = Discovering.infer(method, everything).scores
    assert scores is not None
    return scores


def test_the_anchor_is_the_tail_of_stage_0_for_ever() -> None:
    method = make()
    learn(method, base_stage())
    tail = {key: value.clone() for key, value in method.tail.state_dict().items()}
    learn(method, next_stage())
    learn(method, next_stage({0: 3, 3: 3, 4: 3, 5: 9}, num_known=5, num_new=1))
    for key, value in method.anchor.state_dict().items():
        assert torch.equal(value, tail[key])
    assert not torch.equal(method.tail.out.weight, tail["out.weight"])


def test_training_of_the_discovery_branch_moves_no_score() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage())
    before = infer_all(method, TEST).scores
    method.begin_stage(stage, seeded())
    with torch.no_grad():
        method.tail.out.bias.add_(torch.randn(12, generator=seeded(3)))
    after = infer_all(method, TEST).scores
    assert before is not None and after is not None
    torch.testing.assert_close(after, before)


def test_stage_0_is_happys() -> None:
    method = make()
    happy = Happy.build(
        HappySettings.parse({"name": "happy", **SMALL}), small_tail(), CLASSES, seeded()
    ).eval()
    assert base_settings(DYDM, method.settings) == base_settings(Happy, happy.settings)
    learn(method, base_stage())
    learn(happy, base_stage())
    ours = method.state_dict()
    for key, value in happy.state_dict().items():
        assert torch.equal(ours[key], value), key
    stage = base_stage()
    positions = torch.arange(8)
    pair = stage.tokens.pair(positions, seeded(1))
    batch = LabelledBatch(*pair, positions, stage.labels[positions])
    terms = [model.losses(batch, seeded()) for model in (method, happy)]
    assert terms[0].keys() == terms[1].keys()
    for name, value in terms[0].items():
        assert value.item() == pytest.approx(terms[1][name].item())


def test_the_memory_teaches_known_classes_and_nothing_else_keeps_them() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage())
    method.begin_stage(stage, seeded())
    with torch.no_grad():
        method.tail.out.bias.add_(0.3 * torch.randn(12, generator=seeded(3)))
    positions = torch.arange(6)
    batch = Batch(*stage.tokens.pair(positions, seeded(1)), positions)
    terms = method.losses(batch, seeded())
    assert terms.keys() == {"self_distillation", "entropy", "contrast", "memory"}
    expected = 0.0
    for view in (batch.first, batch.second):
        stable = F.normalize(method.anchor(view), dim=1).double()
        ridged = torch.relu(stable @ method.memory.projection) @ method.memory.solution
        scores = Discovering.infer(method, view).scores
        assert scores is not None
        target = softmax(ridged.detach().numpy() / 0.1 / 2, axis=1)
        own = softmax(scores.detach().double().numpy()[:, :3] / 0.1 / 2, axis=1)
        assert target.shape == own.shape == (6, 3)
        expected += 4 * rel_entr(target, own).sum() / 12
    assert expected > 1e-3
    assert terms["memory"].item() == pytest.approx(expected, rel=1e-4)
    terms["memory"].backward()
    assert method.classifier.weight.grad is not None
    assert method.classifier.weight.grad[3:].abs().max() == 0
    assert method.classifier.weight.grad[:3].abs().max() > 0


def test_planted_new_classes_are_found() -> None:
    found = []
    for seed in range(3):
        method, stage = make(memory_width=200), next_stage(epochs=20)
        learn(method, base_stage(epochs=30), seed)
        learn(method, stage, seed)
        found.append(matched_accuracy(method, stage))
    assert np.mean(found) > 0.8
