"""GOAL+: what it keeps, what it never touches, and that it finds planted classes."""

import torch

from goal.methods.base import infer_all
from goal.methods.goal_plus import GoalPlus
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import TEST, learn


def make() -> GoalPlus:
    method = small_method("goal-plus")
    assert isinstance(method, GoalPlus)
    return method


def test_the_feature_joins_the_pretrained_and_the_aligned_one() -> None:
    method = make()
    before = infer_all(method, TEST).features
    width = before.shape[1] // 2
    assert torch.allclose(before[:, :width], before[:, width:])  # nothing trained yet
    learn(method, base_stage(epochs=5))
    after = infer_all(method, TEST).features
    assert torch.equal(after[:, :width], before[:, :width])
    assert not torch.allclose(after[:, width:], before[:, width:], atol=1e-3)
    assert torch.allclose(after.norm(dim=1), torch.ones(len(after)))


def test_what_is_known_never_changes() -> None:
    method = make()
    learn(method, base_stage())
    before = infer_all(method, TEST).scores
    kept = {key: value.clone() for key, value in method.named_parameters()}
    learn(method, next_stage())
    after = infer_all(method, TEST).scores
    assert before is not None and after is not None and after.shape[1] == before.shape[1] + 2
    assert torch.equal(after[:, : before.shape[1]], before)
    for key, value in method.named_parameters():
        assert torch.equal(value, kept[key]), key


def test_caution_is_held_against_discovered_classes_only() -> None:
    scores = {}
    for caution in (0.0, 2.5):
        method = small_method("goal-plus", caution=caution)
        learn(method, base_stage())
        learn(method, next_stage())
        found = infer_all(method, TEST).scores
        assert found is not None
        scores[caution] = found
    assert torch.equal(scores[0.0][:, :3], scores[2.5][:, :3])
    assert torch.allclose(scores[0.0][:, 3:] - 2.5, scores[2.5][:, 3:])


def test_every_class_owns_a_vertex() -> None:
    method = make()
    learn(method, base_stage())
    learn(method, next_stage())
    owned = method.ledger.vertex_of(torch.arange(5))
    assert bool((owned != UNOWNED).all()) and len(owned.unique()) == 5


def test_planted_classes_are_found_and_base_classes_kept() -> None:
    method = make()
    learn(method, base_stage(epochs=10))
    stage = next_stage()
    learn(method, stage)
    classes = stage.tokens.classes  # type: ignore[attr-defined]
    predicted = method.predict(infer_all(method, stage.tokens))
    assert float((predicted[classes < 3] == classes[classes < 3]).float().mean()) > 0.9
    new = predicted[classes >= 3] - 3, classes[classes >= 3] - 3
    agreement = float((new[0] == new[1]).float().mean())
    assert max(agreement, 1 - agreement) > 0.9


def test_true_labels_can_be_learned_directly() -> None:
    """The bound that benchmarks report: the memory, with an oracle for the new images."""
    method = make()
    learn(method, base_stage(epochs=10))
    stage = next_stage()
    classes = stage.tokens.classes  # type: ignore[attr-defined]
    shares = torch.nn.functional.one_hot(classes, 5)[:, 3:].double()
    method.learn_classes(infer_all(method, stage.tokens), shares)
    assert method.num_classes == 5
    predicted = infer_all(method, stage.tokens).scores
    assert predicted is not None
    assert float((predicted.argmax(dim=1) == classes).float().mean()) > 0.9
