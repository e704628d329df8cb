"""Result tables for the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from goal.report.runs import load_run

STAGE_COLUMNS = {
    "stage": "Stage",
    "all": "All",
    "base": "Base",
    "novel": "Novel",
    "seen": "Seen",
    "unseen": "Unseen",
    "nmi": "NMI",
    "ari": "ARI",
    "num_test": "Test images",
}


def stage_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """One row per stage; both conventions of old and new, each under its own name."""
    table = Table(title="Accuracy per stage, percent")
    for heading in STAGE_COLUMNS.values():
        table.add_column(heading, justify="right")
    for record in records:
        table.add_row(*(Text(cell(record.get(key))) for key in STAGE_COLUMNS))
    return table


def stage_line(record: Mapping[str, Any]) -> str:
    """A stage's accuracies as a line of a log."""
    keys = [key for key in ("all", "base", "novel", "unseen") if record.get(key) is not None]
    figures = ", ".join(f"{STAGE_COLUMNS[key]} {cell(record[key])}" for key in keys)
    return f"After stage {record['stage']}: {figures}"


def cell(value: Any) -> str:
    """Render a figure with one decimal, an absent one as a dash."""
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def comparison_table(folders: Sequence[Path]) -> Table:
    """All per stage, one column per run, then averages: the runs side by side."""
    runs = [load_run(folder) for folder in folders]
    table = Table(title="All classes, percent correct")
    table.add_column("Stage")
    for run in runs:
        table.add_column(Text(run.title), justify="right")
    for index in range(max(len(run.records) for run in runs)):
        row = [run.records[index]["all"] if index < len(run.records) else None for run in runs]
        table.add_row(str(index), *(cell(value) for value in row))
    table.add_section()
    for label, key in (
        ("mean All, stages >= 1", "all"),
        ("mean Base", "base"),
        ("mean Novel", "novel"),
    ):
        table.add_row(label, *(cell(run.summary["average"][key]) for run in runs))
    return table
