"""Matching, scores and summaries equal hand counts, brute force and slow loops."""

import json
import math
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.evaluation.metrics import StageScore, match, score_stage, summarise
from tests.evaluation.helpers import BLANK, ids


def scored(
    stage: int,
    predicted: IntArray,
    truth: IntArray,
    num_base: int,
    num_known: int,
    num_seen: int,
    num_predicted: int,
) -> StageScore:
    owner = match(predicted, truth, num_predicted, num_seen)
    return score_stage(stage, predicted, truth, owner, num_base, num_known)


# Stage 2 of a run with base classes 0 and 1, class 2 found at stage 1, class 3 new.
TRUTH = ids("0 0 0 0 0  1 1  2 2  3 3")
PREDICTED = ids("0 0 0 0 2  2 0  3 3  1 0")
#            true 0  1  2  3
# predicted 0:    4  1  0  1
#           1:    0  0  0  1
#           2:    1  1  0  0
#           3:    0  0  2  0
# Best pairs: 0-0 (4), 1-3 (1), 2-1 (1), 3-2 (2): 8 of 11 agree. Without 0-0 at most 5 could.


def test_match_of_the_hand_made_example() -> None:
    assert match(PREDICTED, TRUTH, 4, 4).tolist() == [0, 3, 1, 2]


def test_score_of_the_hand_made_example() -> None:
    score = scored(2, PREDICTED, TRUTH, 2, 3, 4, 4)
    assert score.stage == 2 and score.num_test == 11
    assert score.all == pytest.approx(100 * 8 / 11)
    assert score.base == pytest.approx(100 * 5 / 7)  # 4 of class 0, 1 of class 1
    assert score.novel == pytest.approx(100 * 3 / 4)  # 2 of class 2, 1 of class 3
    assert score.seen == pytest.approx(100 * 7 / 9)  # classes 0, 1 and 2
    assert score.unseen == pytest.approx(100 * 1 / 2)  # class 3
    assert score.base_identity == pytest.approx(100 * 4 / 7)  # id 2 is not id 1


def test_score_of_stage_0_has_no_novel_classes() -> None:
    score = scored(0, ids("0 1 1 1"), ids("0 0 1 1"), 2, 0, 2, 2)
    assert (score.all, score.base, score.seen) == (75.0, 75.0, 75.0)
    assert score.novel is None and score.unseen is None


def test_one_matching_serves_all_classes() -> None:
    """Base and new class swapped: right for the matching, wrong by identity."""
    score = scored(1, ids("1 1 0 0"), ids("0 0 1 1"), 1, 1, 2, 2)
    assert (score.all, score.base, score.unseen, score.base_identity) == (100.0, 100.0, 100.0, 0.0)


def test_fewer_and_more_predicted_ids_than_classes() -> None:
    # Two ids for three classes: id 0 covers classes 0 and 1 and can stand for one of them only.
    few = scored(1, ids("0 0 0 1 1"), ids("0 0 1 2 2"), 1, 1, 3, 2)
    assert few.all == pytest.approx(80.0)
    # Class 1 is split over ids 1 and 2; the smaller part stays without a partner.
    assert match(ids("0 1 1 2"), ids("0 1 1 1"), 3, 2).tolist() == [0, 1, -1]
    many = scored(1, ids("0 1 1 2"), ids("0 1 1 1"), 1, 1, 2, 3)
    assert many.all == pytest.approx(75.0)


def best_by_brute_force(predicted: IntArray, truth: IntArray, rows: int, columns: int) -> int:
    """Most agreeing images over every injective pairing of ids."""
    pairs = [(int(p), int(t)) for p, t in zip(predicted, truth, strict=True)]
    if rows > columns:
        pairs, rows, columns = [(t, p) for p, t in pairs], columns, rows
    return max(
        sum(chosen[p] == t for p, t in pairs) for chosen in permutations(range(columns), rows)
    )


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 6), st.integers(1, 6), st.integers(1, 30))
def test_match_is_as_good_as_brute_force(
    data: st.DataObject, rows: int, columns: int, size: int
) -> None:
    draw = data.draw
    predicted = np.array(draw(st.lists(st.integers(0, rows - 1), min_size=size, max_size=size)))
    truth = np.array(draw(st.lists(st.integers(0, columns - 1), min_size=size, max_size=size)))
    mapping = match(predicted, truth, rows, columns)
    used = mapping[mapping >= 0]
    assert len(used) == len(set(used.tolist())) == min(rows, columns)
    best = best_by_brute_force(predicted, truth, rows, columns)
    assert int((mapping[predicted] == truth).sum()) == best


@pytest.mark.parametrize(
    ("predicted", "truth", "message"),
    [
        (ids("0 1"), ids("0"), "2 predictions for 1"),
        (ids("0 2"), ids("0 1"), "predicted ids run from 0 to 2"),
        (ids("0 1"), ids("0 -1"), "true ids run from -1 to 0"),
        (np.array([0.0, 1.0]), ids("0 1"), "predicted ids are float64"),
        (ids(""), ids(""), r"shape \(0,\)"),
    ],
)
def test_match_refuses_ids_that_do_not_fit(
    predicted: IntArray, truth: IntArray, message: str
) -> None:
    with pytest.raises(GoalError, match=message):
        match(predicted, truth, 2, 2)


def test_a_group_without_test_images_is_an_error() -> None:
    with pytest.raises(GoalError, match="No test image belongs to the new classes"):
        scored(2, ids("0 1"), ids("0 1"), 1, 2, 3, 3)


def slow_nmi(a: IntArray, b: IntArray) -> float:
    n, mutual, entropies = len(a), 0.0, []
    for x in set(a.tolist()):
        for y in set(b.tolist()):
            both = int(((a == x) & (b == y)).sum())
            if both:
                mutual += both / n * math.log(both * n / int((a == x).sum()) / int((b == y).sum()))
    for labels in (a, b):
        shares = [int((labels == x).sum()) / n for x in set(labels.tolist())]
        entropies.append(-sum(share * math.log(share) for share in shares))
    return mutual / (sum(entropies) / 2)


def slow_ari(a: IntArray, b: IntArray) -> float:
    """Count pairs of images one by one."""
    pairs = [(bool(a[i] == a[j]), bool(b[i] == b[j])) for i, j in combinations(range(len(a)), 2)]
    together = sum(x and y for x, y in pairs)
    in_a, in_b = sum(x for x, _ in pairs), sum(y for _, y in pairs)
    expected = in_a * in_b / len(pairs)
    return (together - expected) / ((in_a + in_b) / 2 - expected)


def test_nmi_and_ari() -> None:
    rng = np.random.default_rng(5)
    truth = rng.permutation(np.repeat(np.arange(6), 10))
    predicted = np.where(rng.random(60) < 0.6, (truth + 1) % 6, rng.integers(0, 6, 60))
    score = scored(1, predicted, truth, 3, 3, 6, 6)
    assert score.nmi == pytest.approx(100 * slow_nmi(truth, predicted))
    assert score.ari == pytest.approx(100 * slow_ari(truth, predicted))
    assert score.nmi == pytest.approx(100 * normalized_mutual_info_score(truth, predicted))
    assert score.ari == pytest.approx(100 * adjusted_rand_score(truth, predicted))


# Made-up figures, chosen so that no two definitions agree by accident.
RUN = [
    replace(BLANK, all=91.0, base=90.0, seen=89.0, nmi=1.0),
    replace(BLANK, stage=1, all=80.0, base=70.0, novel=50.0, seen=72.0, unseen=50.0, nmi=10.0),
    replace(BLANK, stage=2, all=75.0, base=76.0, novel=45.0, seen=60.0, unseen=40.0, nmi=30.0),
    replace(BLANK, stage=3, all=73.0, base=74.0, novel=55.0, seen=66.0, unseen=48.0, nmi=50.0),
]


def test_summary_by_hand() -> None:
    summary = summarise(RUN)
    assert summary["stage0_all"] == 91.0
    average = {"all": 76.0, "base": 73 + 1 / 3, "novel": 50.0, "seen": 66.0, "unseen": 46.0}
    rest = {"nmi": 30.0, "ari": 0.0, "base_identity": 0.0}
    assert summary["average"] == pytest.approx(average | rest)
    final = {"all": 73.0, "base": 74.0, "novel": 55.0, "seen": 66.0, "unseen": 48.0}
    assert summary["final"] == final | rest | {"nmi": 50.0}
    assert summary["forgetting"] == {
        "gm": 29.0,  # 89 - 60, at stage 2
        "happy": 20.0,  # 90 - 70, at stage 1
        "vb_cgcd": 16.0,  # 90 - 74
        "goal_own": 17.0,  # 91 - 74
        "goal_rivals": 25.0,  # 91 - 66
    }
    assert summary["discovery"] == pytest.approx(
        {"gm": 48.0, "happy": 46.0, "vb_cgcd": 46.0, "goal_own": 50.0, "goal_rivals": 46.0}
    )


def test_summary_of_stage_0_alone() -> None:
    summary = summarise(RUN[:1])
    assert summary["stage0_all"] == 91.0 and summary["final"]["base"] == 90.0
    for part in ("average", "forgetting", "discovery"):
        assert summary[part] and set(summary[part].values()) == {None}
    assert json.loads(json.dumps(summary)) == summary


@pytest.mark.parametrize("scores", [[], RUN[1:], [RUN[0], RUN[2]]])
def test_summary_needs_all_stages_in_order(scores: list[StageScore]) -> None:
    with pytest.raises(GoalError, match="stages 0, 1"):
        summarise(scores)
