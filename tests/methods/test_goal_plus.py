"""GOAL+: what it keeps, what it never touches, and that it finds planted classes."""

import pytest
import torch

from goal.methods.base import Method, infer_all
from goal.methods.goal_plus import GoalPlus
from goal.methods.goal_plus_trained import TrainedGoalPlus
from goal.methods.parts.strangeness import some_of_each
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import TEST, learn

FORMS = ("none", "analytic", "trained")
every_form = pytest.mark.parametrize("alignment", FORMS)


def make(alignment: str, caution: float = 1.0) -> Method:
    method = small_method("goal-plus", alignment=alignment, caution=caution)
    assert type(method) is (TrainedGoalPlus if alignment == "trained" else GoalPlus)
    return method


def test_only_the_trained_form_trains_and_only_at_stage_0() -> None:
    for alignment in FORMS:
        method = make(alignment)
        assert method.trains(0) == (alignment == "trained")
        assert not method.trains(1)


def test_the_frozen_feature_is_the_pretrained_one() -> None:
    method = make("none")
    expected = torch.nn.functional.normalize(method.tail(TEST.clean(torch.arange(25))), dim=1)
    learn(method, base_stage())
    learn(method, next_stage())
    assert torch.equal(infer_all(method, TEST).features, expected.detach())


def test_the_feature_joins_the_pretrained_and_the_aligned_one() -> None:
    method = make("trained")
    before = infer_all(method, TEST).features
    width = before.shape[1] // 2
    assert torch.allclose(before[:, :width], before[:, width:])  # nothing trained yet
    learn(method, base_stage(epochs=5))
    after = infer_all(method, TEST).features
    assert torch.equal(after[:, :width], before[:, :width])
    assert not torch.allclose(after[:, width:], before[:, width:], atol=1e-3)
    assert torch.allclose(after.norm(dim=1), torch.ones(len(after)))


@every_form
def test_what_is_known_never_changes(alignment: str) -> None:
    method = make(alignment)
    learn(method, base_stage())
    before = infer_all(method, TEST).scores
    kept = {key: value.clone() for key, value in method.named_parameters()}
    learn(method, next_stage())
    after = infer_all(method, TEST).scores
    assert before is not None and after is not None and after.shape[1] == before.shape[1] + 2
    assert torch.equal(after[:, : before.shape[1]], before)
    for key, value in method.named_parameters():
        assert torch.equal(value, kept[key]), key


@every_form
def test_caution_is_held_against_discovered_classes_by_how_few_images_they_have(
    alignment: str,
) -> None:
    scores = {}
    for caution in (0.0, 30.0):
        method = make(alignment, caution=caution)
        learn(method, base_stage())
        learn(method, next_stage({0: 4, 1: 4, 2: 4, 3: 24, 4: 12}))
        found = infer_all(method, TEST).scores
        assert found is not None
        scores[caution] = found
    assert torch.equal(scores[0.0][:, :3], scores[30.0][:, :3])
    held = (scores[0.0] - scores[30.0])[:, 3:]
    assert torch.allclose(held, held[:1].expand_as(held), atol=1e-4)  # whatever the image
    expected = torch.tensor([30 / 24, 30 / 12])
    assert torch.allclose(held[0].sort().values, expected, rtol=0.1)


@pytest.mark.parametrize("alignment", ["analytic", "trained"])
def test_every_class_owns_a_vertex(alignment: str) -> None:
    method = make(alignment)
    learn(method, base_stage())
    learn(method, next_stage())
    assert isinstance(method, GoalPlus | TrainedGoalPlus) and method.ledger is not None
    owned = method.ledger.vertex_of(torch.arange(5))
    assert bool((owned != UNOWNED).all()) and len(owned.unique()) == 5


def test_without_alignment_classes_need_no_vertices() -> None:
    method = make("none")
    assert isinstance(method, GoalPlus) and method.ledger is None
    learn(method, base_stage())
    many = next_stage({0: 4, 3: 12, 4: 12, 5: 12}, num_new=20)  # a simplex would have six vertices
    learn(method, many)
    assert method.num_classes == 23


@every_form
def test_planted_classes_are_found_and_base_classes_kept(alignment: str) -> None:
    method = make(alignment)
    learn(method, base_stage(epochs=10))
    stage = next_stage()
    learn(method, stage)
    classes = stage.tokens.classes  # type: ignore[attr-defined]
    predicted = method.predict(infer_all(method, stage.tokens))
    assert float((predicted[classes < 3] == classes[classes < 3]).float().mean()) > 0.9
    new = predicted[classes >= 3] - 3, classes[classes >= 3] - 3
    agreement = float((new[0] == new[1]).float().mean())
    assert max(agreement, 1 - agreement) > 0.9


def test_states_of_the_first_version_are_taken_over() -> None:
    method = make("trained")
    learn(method, base_stage())
    learn(method, next_stage())
    now = method.state_dict()
    first = {
        "memory.shapes.": "memory.",
        "memory.looking.": "looking.",
        "memory.deciding.0.": "pretrained.",
        "memory.deciding.1.": "aligned.",
        "memory.known": "known",
    }
    then = {}
    for name, tensor in now.items():
        old = next((o + name.removeprefix(n) for n, o in first.items() if name.startswith(n)), name)
        then[old] = tensor
    del then["memory.wary"], then["memory.strange"], then["memory.gap"]
    back = method.carried_over(then)
    assert back.keys() == now.keys()
    rest = now.keys() - {"memory.wary", "memory.strange", "memory.gap"}
    assert all(torch.equal(back[name], now[name]) for name in rest)
    assert torch.allclose(back["memory.wary"], torch.tensor([0, 0, 0, 0.16, 0.16]).double())
    assert len(back["memory.strange"]) == 0


def test_many_labelled_images_are_thinned_class_by_class() -> None:
    labels = torch.cat([torch.zeros(1000), torch.ones(10), torch.full((90,), 2)]).long()
    labels = labels[torch.randperm(1100, generator=torch.Generator().manual_seed(0))]
    chosen = some_of_each(labels, 120)
    assert len(chosen) <= 120 and torch.equal(chosen, chosen.unique())
    counts = torch.bincount(labels[chosen]).tolist()
    assert counts[1] == 10 and counts[0] == 40 and 30 <= counts[2] <= 40
    assert torch.equal(some_of_each(labels, 1100), torch.arange(1100))
