"""The report: one HTML file that opens from disk, needs no network, and explains itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goal import __version__
from goal.pages import html
from goal.report.compare import find_runs
from goal.report.content import build
from goal.report.runs import RunRecord
from goal.report.tables import STAGE_COLUMNS, cell
from goal.runs.damage import blaming_damage
from goal.storage.files import write_text
from goal.storage.manifest import amend


def write_report(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of one run, or of all finished runs in or below the folders.

    Args:
        folders: Run folders, or folders that hold some.
        path: The HTML file to write.

    Returns:
        `path`.
    """
    text = render(find_runs(folders))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    amend(path)
    return path


def render(runs: Sequence[RunRecord]) -> str:
    """Build the page."""
    with blaming_damage(run.folder for run in runs):
        return _render(runs)


def _render(runs: Sequence[RunRecord]) -> str:
    content = build(runs)
    return html.render(
        "report.html",
        datasets=", ".join(sorted({str(run.summary["dataset"]) for run in runs})),
        lead=_lead(content["benchmarks"]),
        columns=list(STAGE_COLUMNS.values()),
        runs=[{"title": run.title, "rows": _rows(run)} for run in runs],
        content=content,
        version=__version__,
    )


def _lead(benchmarks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What came out, for a sentence or two at the top of the page."""
    groups = benchmarks[0]["groups"]
    best = groups[0]
    last = best["stages"][-1]
    return {
        "stage": len(best["stages"]) - 1,
        "dataset": benchmarks[0]["dataset"],
        "label": best["label"],
        "rivals": len(groups),
        "images": f"{last['num_test']:,}",
        **{key: last[key] and f"{last[key][0]:.1f}" for key in ("all", "base", "novel")},
        "seeds": len(best["seeds"]),
        "selected_on_test": any(
            group["selection"] == "best_on_test"
            for benchmark in benchmarks
            for group in benchmark["groups"]
        ),
    }


def _rows(run: RunRecord) -> list[list[str]]:
    """Every stage of a run in figures, readable without scripts."""
    return [[cell(record.get(key)) for key in STAGE_COLUMNS] for record in run.records]
