"""GOAL chooses its confident samples, clusters them, and gives each new class a vertex."""

import pytest
import torch

from goal.methods.base import Stage, infer_all
from goal.methods.goal import Goal
from goal.numerics.simplex import UNOWNED
from goal.testing.planted import base_stage, next_stage
from goal.testing.teaching import learn
from tests.methods.goal_helpers import begun, goal


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
