"""The published tables fit the conventions and the definitions of forgetting and discovery."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from goal.evaluation.metrics import StageScore, summarise
from tests.evaluation.helpers import BLANK

PUBLISHED = json.loads((files("goal") / "report" / "published.json").read_text(encoding="utf-8"))
TABLE1: dict[str, dict[str, Any]] = PUBLISHED["table1_five_stages"]
TABLE2: dict[str, dict[str, Any]] = PUBLISHED["table2_forgetting_discovery"]

# Base classes are half of all, and five stages share the other half, so
# old and new weigh 4 + t to 1 after stage t if "old" is seen, and 5 to t if "old" is base.
CELLS = [
    (dataset, method, index, stage)
    for dataset, rows in TABLE1.items()
    for method, row in rows.items()
    for index, stage in enumerate(row["stages"], start=1)
]


def misfit(stage: dict[str, float], old: int, new: int) -> float:
    return abs((old * stage["old"] + new * stage["new"]) / (old + new) - stage["all"])


def misfits(index: int, stage: dict[str, float]) -> tuple[float, float]:
    """How far All is from the weighted mean under seen/unseen and under base/novel."""
    return misfit(stage, 4 + index, 1), misfit(stage, 5, index)


# Printed cells that no rounding explains under either convention (the paper has them like this).
MISPRINTS = {
    ("cub", "SimGCD", 1),  # (5 * 84.5 + 22.0) / 6 = 74.1, printed 73.8; CUB's classes are uneven
    ("cub", "FRoST", 1),  # (5 * 84.0 + 43.5) / 6 = 77.25, printed 77.0; the same
    ("cub", "MetaGCD", 2),  # (6 * 61.0 + 50.9) / 7 = 59.6, printed 60.8
    ("cub", "MetaGCD", 3),  # (7 * 59.3 + 37.8) / 8 = 56.6, printed 57.5
    ("imagenet100", "MetaGCD", 2),  # (6 * 75.9 + 54.9) / 7 = 72.9, printed 73.8
    ("imagenet100", "GOAL", 4),  # (5 * 92.4 + 4 * 68.4) / 9 = 81.7, printed 81.2
    ("imagenet100", "GOAL", 5),  # (93.0 + 66.6) / 2 = 79.8, printed 79.3
}


def test_published_rows_are_complete() -> None:
    assert len(TABLE1) == 4 and all(len(rows) == 8 for rows in TABLE1.values())
    assert len(CELLS) == 4 * 8 * 5 and len({method for _, method, _, _ in CELLS}) == 8


def test_rivals_rows_are_seen_unseen_and_goals_are_base_novel() -> None:
    off = set()
    for dataset, method, index, stage in CELLS:
        soft, hard = misfits(index, stage)
        own, other = (hard, soft) if method == "GOAL" else (soft, hard)
        if own > 0.15:
            off.add((dataset, method, index))
        if index > 1:  # at stage 1 the two conventions are one; later even misprints tell them
            assert own < other, (dataset, method, index)
    assert off == MISPRINTS


@pytest.mark.parametrize("dataset", TABLE1)
def test_goals_rows_do_not_fit_seen_unseen(dataset: str) -> None:
    assert misfits(5, TABLE1[dataset]["GOAL"]["stages"][4])[0] > 5
    assert misfits(5, TABLE1[dataset]["Happy"]["stages"][4])[1] > 2


def scores_of(row: dict[str, Any]) -> list[StageScore]:
    """A printed row as scores, its old and new filled in under both conventions."""
    s0 = row["stage0_all"]
    scores = [replace(BLANK, all=s0, base=s0, seen=s0)]
    for index, stage in enumerate(row["stages"], start=1):
        old, new = stage["old"], stage["new"]
        filled = replace(BLANK, all=stage["all"], base=old, novel=new, seen=old, unseen=new)
        scores.append(replace(filled, stage=index))
    return scores


@pytest.mark.parametrize("dataset", TABLE1)
@pytest.mark.parametrize("method", TABLE2)
def test_published_forgetting_and_discovery(method: str, dataset: str) -> None:
    name = "goal_own" if method == "GOAL" else "goal_rivals"
    summary = summarise(scores_of(TABLE1[dataset][method]))
    printed = TABLE2[method][dataset]
    # Two figures of one decimal each give 0.1; means of five give 0.05, and 0.005 for the print.
    assert summary["forgetting"][name] == pytest.approx(printed["forgetting"], abs=0.105)
    # GOAL's novel accuracies on TinyImageNet average 47.64, but 47.88 is printed.
    tolerance = 0.25 if (method, dataset) == ("GOAL", "tinyimagenet") else 0.055
    assert summary["discovery"][name] == pytest.approx(printed["discovery"], abs=tolerance)


def test_published_forgetting_on_cifar100() -> None:
    goal, happy = (summarise(scores_of(TABLE1["cifar100"][name])) for name in ("GOAL", "Happy"))
    assert goal["forgetting"]["goal_own"] == pytest.approx(11.8)  # 91.0 - 79.2
    assert happy["forgetting"]["goal_rivals"] == pytest.approx(29.4)  # 90.4 - 61.0
