"""The papers' tables: means by hand, published rows in their own convention only."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.report.compare import (
    TextTable,
    find_runs,
    group_runs,
    mean_and_deviation,
    paper_tables,
    sweep_table,
)
from goal.report.formats import comma_separated, latex, markdown
from tests.report.runs import write_run

FIVE = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]


def row(table: TextTable, start: str) -> dict[str, str]:
    cells = next(cells for cells in table.rows if cells[0].startswith(start))
    return dict(zip(table.headings, cells, strict=True))


def test_cells_have_mean_and_sample_deviation() -> None:
    assert mean_and_deviation([1.0, 2.0, 3.0]) == "2.0 ± 1.0"
    assert mean_and_deviation([2.0]) == "2.0"
    assert mean_and_deviation([None, None]) == "–"


def test_seeds_are_averaged_and_the_paper_stands_beside_in_its_convention(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE, seed=0)
    write_run(tmp_path / "b", [value + 2 for value in FIVE], seed=1)
    hard, soft, forgetting = paper_tables([tmp_path])
    assert "base/novel" in hard.title and "seen/unseen" in soft.title
    ours = row(hard, "goal, n=2")
    assert ours["S0"] == "91.0 ± 1.4"
    assert ours["S1 All"] == "81.0 ± 1.4" and ours["S1 Base"] == "91.0 ± 1.4"
    assert ours["Avg All"] == "61.0 ± 1.4"
    paper = row(hard, "  paper")  # GOAL's own row of Table 1
    assert (paper["S0"], paper["S5 All"], paper["S5 Base"], paper["S5 Novel"]) == (
        "91",
        "61.5",
        "79.2",
        "43.8",
    )
    other = row(soft, "  paper")
    assert (other["S5 All"], other["S5 Seen"], other["S5 Unseen"]) == ("61.5", "–", "–")
    figures = row(forgetting, "goal")
    assert figures["M_f goal_own"] == "40.0 ± 0.0"  # 90 - (40 + 10), and 92 - (42 + 10)
    assert row(forgetting, "  paper")["M_f goal_own"] == "11.82"
    assert row(forgetting, "  paper")["M_f goal_rivals"] == "–"


def test_ten_stages_are_table_three(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [90.0 - index for index in range(11)])
    hard, _, _ = paper_tables([tmp_path])
    assert hard.title.startswith("Table 3")
    assert row(hard, "  paper")["S10 All"] == "63.06"


def test_the_ablation_needs_more_than_one_of_its_rows(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE)
    write_run(tmp_path / "b", FIVE, assignments=("method.unsupervised_alignment=false",))
    tables = paper_tables([tmp_path])
    (ablation,) = (table for table in tables if table.title.startswith("Table 4"))
    assert [cells[:2] for cells in ablation.rows] == [["yes", "no"], ["yes", "yes"]]
    assert ablation.rows[0][5:] == ["70.4", "83.7", "46.2"]
    assert len({group.label for group in group_runs(find_runs([tmp_path]))}) == 2


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE)
    write_run(tmp_path / "b", FIVE, seed=1, assignments=("method.alpha=0.5",))
    labels = [group.label for group in group_runs(find_runs([tmp_path]))]
    assert labels == ["goal (alpha=0.5), n=1", "goal (alpha=0.7), n=1"]


def test_runs_older_than_a_setting_count_as_having_its_default(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE)
    older = write_run(tmp_path / "b", FIVE, seed=1) / "settings.yaml"
    text = older.read_text()
    assert "  alpha: 0.7\n" in text
    older.write_text(text.replace("  alpha: 0.7\n", ""))
    assert [group.label for group in group_runs(find_runs([tmp_path]))] == ["goal, n=2"]
    older.write_text(text + "younger: 1\n")  # a key of a later version
    assert len(group_runs(find_runs([tmp_path]))) == 2


def test_a_backbones_place_is_not_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE, assignments=("backbone.name=/secret/place/resnet",))
    assert all("/secret" not in table.note for table in paper_tables([tmp_path]))


def test_sweep_table(tmp_path: Path) -> None:
    folders = []
    for value, shift in (("0.1", 0.0), ("0.9", 4.0)):
        for seed in (0, 1):
            place = tmp_path / f"method.alpha={value}" / f"seed-{seed}"
            accuracy = [item + shift + seed for item in FIVE]
            assignment = (f"method.alpha={value}",)
            write_run(place, accuracy, seed=seed, assignments=assignment)
            folders.append((place.parent.name, place))
    table = sweep_table("method.alpha", folders)
    assert [cells[:2] for cells in table.rows] == [["0.1", "60.5 ± 0.7"], ["0.9", "64.5 ± 0.7"]]


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="No finished run"):
        paper_tables([tmp_path])


def test_formats_escape_what_their_readers_would_run() -> None:
    table = TextTable("A_b & 100%", ["x|y", "z"], [["=1+1", "2 ± 1"]], "note_")
    assert r"x\|y" in markdown(table)
    text = latex(table)
    assert r"A\_b \& 100\%" in text and r"2 $\pm$ 1" in text
    rows: list[dict[str, Any]] = [
        {"a": "=1+1", "b": -2.5, "c": None},
        {"a": "-3", "b": 1, "c": "x"},
    ]
    assert list(csv.DictReader(io.StringIO(comma_separated(rows)))) == [
        {"a": "'=1+1", "b": "-2.5", "c": ""},
        {"a": "-3", "b": "1", "c": "x"},
    ]
