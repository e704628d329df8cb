"""The report: one HTML file that opens from disk, needs no network, and explains itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from goal.files import write_text
from goal.report.runs import RunRecord, load_run
from goal.report.tables import STAGE_COLUMNS, cell

# Colour-blind safe (Okabe and Ito), readable on light and dark.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT, _MARGIN = 640, 280, 40

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --line: #d8dce2; --soft: #667; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --paper: #16181c; --line: #383c44; --soft: #9aa0aa; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
p.soft, figcaption, small { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; font-size: .85rem; }
@media print { details { display: none; } }
"""

_CONVENTIONS = (
    "<p><b>All</b> is accuracy over every class seen so far, after one Hungarian matching of "
    "predicted to true classes on the whole test set. <b>Base</b>/<b>Novel</b> split it by "
    "labelled base classes and everything discovered since; <b>Seen</b>/<b>Unseen</b> by classes "
    "known before the stage and the stage's own. Papers mix the two pairs up: only All compares "
    "across them.</p>"
)


def write_report(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of one run, or of several side by side; return its path."""
    runs = [load_run(folder) for folder in folders]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(runs))
    return path


def render(runs: Sequence[RunRecord]) -> str:
    """Build the page."""
    first = runs[0].summary
    sections = [
        f"<h1>{escape(str(first['dataset']))}: categories discovered stage by stage</h1>",
        _headline(runs[0]),
        "<h2>All classes, stage by stage</h2>",
        _chart(runs),
        _comparison(runs),
        _CONVENTIONS,
        *(_run_section(run) for run in runs),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>GOAL report: {escape(str(first['dataset']))}</title><style>{_STYLE}</style>"
        f"</head><body>{''.join(sections)}</body></html>\n"
    )


def _headline(run: RunRecord) -> str:
    last, summary = run.records[-1], run.summary
    warning = (
        "<p><b>Each stage's epoch was selected on test accuracy, as some papers do: these are not "
        "honest estimates.</b></p>"
        if summary["selection"] == "best_on_test"
        else ""
    )
    return (
        f"<p>After stage {last['stage']}, <b>{escape(str(summary['method']))}</b> names "
        f"<b>{cell(last['all'])}%</b> of {last['num_test']:,} test images correctly: "
        f"{cell(last['base'])}% of the base classes, {cell(last['novel'])}% of the classes it "
        f"discovered without a label.</p>{warning}"
        f"<p class='soft'>Backbone {escape(str(summary['backbone']))}; seed {summary['seed']}; "
        f"{cell(summary['wall_seconds'])} s.</p>"
    )


def _chart(runs: Sequence[RunRecord]) -> str:
    stages = max(len(run.records) for run in runs)
    right, bottom = _WIDTH - 140, _HEIGHT - _MARGIN

    def at(stage: int, value: float) -> tuple[float, float]:
        x = _MARGIN + (right - _MARGIN) * stage / max(1, stages - 1)
        return round(x, 1), round(bottom - (bottom - 15) * value / 100, 1)

    parts = []
    for percent in range(0, 101, 20):
        x, y = at(0, percent)
        parts.append(f"<line x1='{x}' y1='{y}' x2='{right}' y2='{y}' stroke='var(--line)'/>")
        parts.append(f"<text x='{x - 8}' y='{y + 4}' text-anchor='end'>{percent}</text>")
    for stage in range(stages):
        x, y = at(stage, 0)
        parts.append(f"<text x='{x}' y='{y + 20}' text-anchor='middle'>stage {stage}</text>")
    for number, run in enumerate(runs):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [at(record["stage"], record["all"]) for record in run.records]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>")
        for (x, y), record in zip(points, run.records, strict=True):
            tip = f"{run.title}, stage {record['stage']}: {cell(record['all'])}"
            parts.append(
                f"<circle cx='{x}' cy='{y}' r='4' fill='{colour}'><title>{escape(tip)}</title>"
                "</circle>"
            )
        label = f"<text x='{right + 10}' y='{points[-1][1] + 4}'>{escape(run.title)}</text>"
        parts.append(label)
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='Accuracy on all classes by stage'>{''.join(parts)}</svg>"
        "<figcaption>Percent of test images of all classes seen so far.</figcaption></figure>"
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _comparison(runs: Sequence[RunRecord]) -> str:
    rows = []
    for run in runs:
        average = run.summary["average"]
        keys = ("all", "base", "novel", "seen", "unseen")
        rows.append(
            [
                run.title,
                run.summary["stage0_all"],
                *(average[key] for key in keys),
                run.summary["final"]["all"],
                run.summary["forgetting"]["happy"],
            ]
        )
    headings = ["Run", "Stage 0", "All", "Base", "Novel", "Seen", "Unseen", "Final All"]
    note = "<p class='soft'>Averages over stages 1 and later, percent.</p>"
    return _table([*headings, "Base forgetting"], rows) + note


_RECORD_COLUMNS = {
    **STAGE_COLUMNS,
    "num_train": "Train images",
    "confident_size": "Confident",
    "confident_novel": "truly new %",
    "confident_purity": "purity %",
}
_GEOMETRY_COLUMNS = {
    "nc1": "NC1 within/between",
    "nc2": "NC2 off simplex",
    "nc3": "NC3 means·weights",
    "nc3_vertices": "NC3 means·vertices",
    "nc4": "NC4 agreement",
    "vertex_alignment": "cos to vertex",
}


def _run_section(run: RunRecord) -> str:
    rows = [[record.get(key) for key in _RECORD_COLUMNS] for record in run.records]
    parts = [f"<h2>{escape(run.title)}</h2>", _table(list(_RECORD_COLUMNS.values()), rows)]
    present = [key for key in _GEOMETRY_COLUMNS if any(key in record for record in run.records)]
    if present:
        headings = ["Stage", *(_GEOMETRY_COLUMNS[key] for key in present)]
        geometry = [
            [record["stage"], *(_precise(record.get(key)) for key in present)]
            for record in run.records
        ]
        parts += ["<p class='soft'>Geometry on the test images:</p>", _table(headings, geometry)]
    forms = run.summary["forgetting"]
    discovery = run.summary["discovery"]
    parts.append(
        "<p class='soft'>Forgetting and discovery in every published form:</p>"
        + _table(["Form", "M_f", "M_d"], [[key, forms[key], discovery[key]] for key in forms])
    )
    versions = ", ".join(f"{name} {number}" for name, number in run.summary["versions"].items())
    parts.append(
        f"<details><summary>Settings and versions</summary><pre>{escape(run.settings)}</pre>"
        f"<p class='soft'>{escape(versions)}</p></details>"
    )
    return "".join(parts)


def _precise(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
