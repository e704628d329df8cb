"""Records of runs: of their types, or an error that names file and line, whoever reads them."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.report.compare import paper_tables
from goal.report.figures import write_figures
from goal.report.page import write_report
from goal.report.tables import comparison_table
from goal.report.tidy import tidy_rows
from goal.runs.records import read_history, read_results, read_summary
from goal.runs.run import resume
from goal.storage import checkpoint
from goal.verify import verify
from tests.report.runs import write_run

FIXTURE = Path(__file__).parents[1] / "fixtures" / "format-1" / "run"
TAG = "<img src=x onerror=alert(1)>"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Two runs, of which tests damage the second."""
    write_run(tmp_path / "runs" / "a", [90.0, 80.0], dataset="digits")
    write_run(tmp_path / "runs" / "b", [91.0, 81.0], dataset="digits", seed=1)
    return tmp_path / "runs"


def change(path: Path, line: int, **values: Any) -> None:
    rows = [json.loads(text) for text in path.read_text().splitlines()] or [
        {"stage": 0, "epoch": 1}
    ]
    rows[line - 1] |= values
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


BAD_RESULTS: list[dict[str, Any]] = [
    {"nmi": TAG},
    {"ari": [TAG]},
    {"all": float("nan")},
    {"base": float("-inf")},
    {"novel": True},
    {"num_known": TAG},
    {"num_test": -1},
    {"confident_purity": {"a": TAG}},
    {"all": 1e300},
    {"younger": {"nested": TAG}},
    {"younger": float("nan")},
    {"stage": 7},
]
READERS: list[Callable[[Path], Any]] = [
    lambda root: paper_tables([root]),
    lambda root: tidy_rows([root]),
    lambda root: write_report([root], root / "report.html"),
    lambda root: write_figures([root], root / "figures"),
    lambda root: comparison_table([root / "a", root / "b"]),
]


def named(key: str, value: Any) -> str:
    """What the message must have: the key, or that what JSON has no word for is no number."""
    odd = isinstance(value, float) and not math.isfinite(value)
    return "is no number that can be shown" if odd else key


@pytest.mark.parametrize("values", BAD_RESULTS, ids=str)
def test_a_bad_line_of_results_is_named(values: dict[str, Any], pair: Path) -> None:
    change(pair / "b" / "results.jsonl", 2, **values)
    with pytest.raises(GoalError, match=r"b/results\.jsonl is damaged in line 2") as error:
        read_results(pair / "b")
    ((key, value),) = values.items()
    assert named(key, value) in str(error.value)


@pytest.mark.parametrize("read", READERS)
def test_every_reader_refuses_it(read: Callable[[Path], Any], pair: Path) -> None:
    read(pair)
    shutil.rmtree(pair / "figures", ignore_errors=True)
    change(pair / "b" / "results.jsonl", 1, nmi=TAG)
    with pytest.raises(GoalError, match=r"b/results\.jsonl is damaged in line 1"):
        read(pair)


@pytest.mark.parametrize("value", [float("nan"), TAG, [1.0], True])
def test_a_bad_line_of_history_is_named(value: Any, pair: Path) -> None:
    change(pair / "b" / "history.jsonl", 1, contrast=value)
    with pytest.raises(GoalError, match=r"history\.jsonl is damaged in line 1"):
        read_history(pair / "b")
    with pytest.raises(GoalError, match=r"history\.jsonl is damaged in line 1"):
        write_report([pair], pair / "report.html")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", TAG),
        ("wall_seconds", float("inf")),
        ("stage0_all", TAG),
        ("average", {"all": 1.0}),
        ("forgetting", {"gm": TAG}),
        ("versions", {"goal": 1}),
        ("stage_seconds", [TAG]),
        ("method", None),
    ],
)
def test_a_bad_summary_is_named(key: str, value: Any, pair: Path) -> None:
    path = pair / "b" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(GoalError, match=r"b/summary\.json is damaged") as error:
        read_summary(pair / "b")
    assert named(key, value) in str(error.value)


def test_settings_are_read_without_aliases(pair: Path) -> None:
    bomb = "a: &a [1]\nmethod: {name: goal, x: *a}\n"
    (pair / "b" / "settings.yaml").write_text(bomb)
    for read in READERS:
        with pytest.raises(GoalError, match="aliases"):
            read(pair)
    (pair / "b" / "settings.yaml").write_text("method: goal\n")
    with pytest.raises(GoalError, match=r"settings\.yaml is damaged"):
        paper_tables([pair])


def test_resume_and_verify_refuse_it_too(tmp_path: Path) -> None:
    run = Path(shutil.copytree(FIXTURE, tmp_path / "run"))
    (run / "manifest.json").unlink()  # who writes a file can write a manifest that fits
    change(run / "results.jsonl", 2, nmi=TAG)
    with pytest.raises(GoalError, match=r"results\.jsonl is damaged in line 2"):
        resume(run)
    problems = verify(run).problems
    assert any("results.jsonl is damaged in line 2" in problem for problem in problems)
    (run / "summary.json").unlink()
    saved = checkpoint.load(run / "checkpoint.pt")
    rows = json.loads(saved["records"])
    rows[0]["nmi"] = TAG
    checkpoint.save(run / "checkpoint.pt", {**saved, "records": json.dumps(rows)})
    with pytest.raises(GoalError, match=r"checkpoint\.pt is damaged in line 1"):
        resume(run)


def test_keys_of_other_versions_may_stand_beside(pair: Path) -> None:
    change(pair / "b" / "results.jsonl", 1, younger="text", number=3)
    assert read_results(pair / "b")[0]["younger"] == "text"
