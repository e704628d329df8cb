"""Tables for programs: each figure once, readable by csv and pandas without a word of advice."""

import csv
import io
import json
import math
from pathlib import Path
from statistics import mean, stdev

import pytest

from goal.cli import main
from goal.report.compare import TextTable, paper_tables
from goal.report.formats import comma_separated, latex, latex_tables
from goal.report.tidy import COLUMNS, sweep_rows, tidy_rows
from tests.report.runs import write_run

FIVE = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]


def compare(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["compare", *words])
    return int(stop.value.code or 0), "".join(capsys.readouterr())


def figure(rows: list[dict[str, str]], **wanted: str) -> dict[str, str]:
    (row,) = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return row


def test_csv_is_one_table_with_a_column_per_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a", FIVE)
    write_run(tmp_path / "b", [value + 2 for value in FIVE], seed=1)
    code, text = compare(capsys, str(tmp_path), "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert code == 0 and tuple(rows[0]) == COLUMNS
    assert all(None not in row and None not in row.values() for row in rows)  # no ragged line
    for row in rows:
        assert row["mean"] == "" or math.isfinite(float(row["mean"]))
    places = [(row["source"], row["table"], row["metric"], row["stage"]) for row in rows]
    assert len(set(places)) == len(places)
    ours = figure(rows, source="run", metric="base", stage="2")
    both = [70.0 + 10, 72.0 + 10]
    assert float(ours["mean"]) == mean(both)
    assert float(ours["sd"]) == pytest.approx(stdev(both), abs=1e-6)
    assert (ours["n"], ours["convention"], ours["method"]) == ("2", "base/novel", "goal")
    paper = figure(rows, source="paper", metric="novel", stage="5")
    assert (paper["mean"], paper["sd"], paper["n"]) == ("43.8", "", "")
    assert figure(rows, source="paper", metric="forgetting_goal_own")["mean"] == "11.82"
    assert figure(rows, source="run", metric="average_all")["stage"] == ""


def test_json_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", FIVE)
    write_run(tmp_path / "b", FIVE, assignments=("method.unsupervised_alignment=false",))
    _, text = compare(capsys, str(tmp_path), "--json")
    rows = json.loads(text)
    _, table = compare(capsys, str(tmp_path), "--csv")
    assert [str(row["mean"] if row["mean"] is not None else "") for row in rows] == [
        row["mean"] for row in csv.DictReader(io.StringIO(table))
    ]
    switched = [row for row in rows if row["table"] == 4 and row["source"] == "paper"]
    assert {row["variant"]: row["mean"] for row in switched if row["metric"] == "average_all"} == {
        "supervised on, unsupervised off": 70.4,
        "supervised on, unsupervised on": 72.1,
    }


def test_pandas_reads_numbers_as_numbers(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_run(tmp_path / "a", FIVE)
    table = pandas.read_csv(io.StringIO(comma_separated(tidy_rows([tmp_path]))))
    for column in ("table", "stages", "stage", "mean", "sd", "n"):
        assert pandas.api.types.is_numeric_dtype(table[column]), column


def test_a_curve_has_a_row_for_each_value_and_measure(tmp_path: Path) -> None:
    folders = []
    for value, shift in (("1", 0.0), ("-2", 4.0)):
        for seed in (0, 1):
            place = write_run(
                tmp_path / value / str(seed), [x + shift + seed for x in FIVE], seed=seed
            )
            folders.append((f"method.alpha={value}", place))
    text = comma_separated(sweep_rows("method.alpha", folders))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["value"] for row in rows] == ["1"] * 5 + ["-2"] * 5
    row = figure(rows, value="-2", metric="average_all")
    assert (float(row["mean"]), row["n"], row["setting"]) == (64.5, "2", "method.alpha")
    assert float(row["sd"]) == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_latex_has_the_best_in_bold_and_a_caption_and_label_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a", [90.0, 80.0], dataset="digits")
    write_run(tmp_path / "b", [95.0, 60.0], dataset="digits", method="kmeans")
    words = [str(tmp_path), "--latex", "--caption", r"As in \cite{x}", "--label", "tab:digits"]
    code, text = compare(capsys, *words)
    assert code == 0 and r"\label{tab:digits-1}" in text and r"\caption{As in \cite{x}" in text
    first = text.split(r"\end{table}")[0]
    goal, kmeans = (line for line in first.splitlines() if "n=1" in line)
    assert goal.split(" & ")[1:3] == ["90.0", r"\textbf{80.0}"]
    assert kmeans.split(" & ")[1:3] == [r"\textbf{95.0}", "60.0"]
    code, text = compare(capsys, str(tmp_path), "--csv", "--label", "x")
    assert code == 1 and "--latex" in text


def test_less_forgetting_is_better_and_published_rows_do_not_compete() -> None:
    rows = [["a", "1.0 ± 0.1", "5.0"], ["b", "2.0", "5.0"], ["  paper", "0.5", "9.0"]]
    table = TextTable("t", ["Method", "M_f happy", "All"], rows)
    assert table.best == {(0, 1), (0, 2), (1, 2)}
    assert r"\textbf{1.0 $\pm$ 0.1}" in latex(table)
    assert r"\label{x}" in latex_tables([table], "c", "x")
    assert r"\caption{c}" in latex_tables([table], "c", "x")


def test_published_rows_are_explained_only_where_there_are_some(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [90.0, 80.0], dataset="digits")
    assert all("aper" not in table.note for table in paper_tables([tmp_path]))
