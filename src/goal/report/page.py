"""The report: one HTML file that opens from disk, needs no network, and explains itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from goal import __version__
from goal.pages.html import asset, document, json_script
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
    datasets = sorted({str(run.summary["dataset"]) for run in runs})
    title = f"{', '.join(datasets)}: what was discovered"
    body = Template(asset("report.html")).substitute(
        title=escape(title),
        lead=_lead(content),
        tables="".join(_run_table(run) for run in runs),
        footer=f"Made by goal-cgcd {escape(__version__)} from {len(runs)} "
        f"run{'s' * (len(runs) != 1)}. This file needs no network and can be passed on as it is.",
    )
    return document(
        f"GOAL report: {', '.join(datasets)}",
        f"<style>{_tones(content['benchmarks'])}</style>{body}{json_script('data', content)}",
        styles=("galleries.css", "report.css"),
        scripts=("charts.js", "galleries.js", "report.js"),
    )


def _tones(benchmarks: Sequence[dict[str, Any]]) -> str:
    """Colour of every series, on light and on dark paper."""

    def listed(tone: str) -> str:
        return "".join(
            f"--series-{place}-{index}:{group['style'][tone]};"
            for place, benchmark in enumerate(benchmarks)
            for index, group in enumerate(benchmark["groups"])
        )

    light, dark = listed("light"), listed("dark")
    return (
        f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{{light}}}}}"
    )


def _lead(content: dict[str, Any]) -> str:
    """Say in a sentence or two what came out."""
    benchmark = content["benchmarks"][0]
    groups = benchmark["groups"]
    best = groups[0]
    last = best["stages"][-1]
    stage = len(best["stages"]) - 1
    many = f"the best of {len(groups)} here, " if len(groups) > 1 else ""
    seeds = f", mean over {len(best['seeds'])} seeds" if len(best["seeds"]) > 1 else ""
    parts = (
        f": {last['base'][0]:.1f}% of the base classes it had labels for, "
        f"{last['novel'][0]:.1f}% of the classes it discovered without a label{seeds}."
        if last["novel"]
        else f"{seeds}."
    )
    text = (
        f"<p class='lead'>After stage {stage} of {escape(str(benchmark['dataset']))}, "
        f"<b>{escape(best['label'])}</b>, {many}names <b>{last['all'][0]:.1f}%</b> of "
        f"{last['num_test']:,} test images correctly{parts}</p>"
    )
    if any(g["selection"] == "best_on_test" for b in content["benchmarks"] for g in b["groups"]):
        text += (
            "<p class='warning'>Some runs selected each stage's epoch on test accuracy, as some "
            "papers do: their figures are not honest estimates.</p>"
        )
    return text


def _run_table(run: RunRecord) -> str:
    """Every stage of a run in figures, readable without scripts."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in STAGE_COLUMNS.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{cell(record.get(key))}</td>" for key in STAGE_COLUMNS) + "</tr>"
        for record in run.records
    )
    return (
        f"<h3>{escape(run.title)}</h3><div class='wide'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
