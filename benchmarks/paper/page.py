"""REPRODUCTION.md: every row of the benchmark beside its published figure, from run folders."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.paper.benchmark import Benchmark, folder_of
from benchmarks.paper.rows import ALIGNMENTS, Row
from goal.common.errors import GoalError
from goal.report.compare import mean_and_deviation, paper_tables
from goal.report.figures import write_figures
from goal.report.formats import markdown
from goal.report.published import ablation, confident_share, stage_row
from goal.report.runs import RunRecord, load_run
from goal.storage.files import write_text

TITLES = {
    "five-stages": "Five stages, every method (Tables 1 and 2)",
    "ten-stages": "Ten stages (Table 3)",
    "alignment": "Which alignment pays (Table 4)",
    "alignment-1": "Which alignment pays with distillation 1",
    "alignment-0": "Which alignment pays without distillation",
    "equal-start": "GOAL with Happy's stage 0, head initialisation and retention",
    "alpha": "The share of confident samples (Figure 3)",
    "readings": "Other readings of the paper",
    "lengths": "How long stage 0 lasts",
    "last-block": "The network's own last block in place of an added one",
    "happy-ablation": "Happy's ablation",
}
# The picture of a part, as `goal figures` names it.
FIGURES = {"alignment": "ablation-{}-5", "alpha": "sweep-{}-method.alpha"}
LEGEND = """
All, Base, Novel, Seen and Unseen are averages over the stages after stage 0, in percent, mean and
standard deviation over seeds. Base/Novel: base classes against everything found since.
Seen/Unseen: classes known before a stage against its own. Forgetting is the largest drop of base
accuracy (Happy's M_f). "S0 by centroid" is stage 0 by the nearest mean of a labelled class, for
methods that predict by k-means. Minutes are wall time on one core of a busy machine, pauses
included, so upper bounds (stage 0 is trained once per family and seed, and the first method of a
family pays for it). MB kept is the checkpoint; MB at most the largest resident memory, libraries,
backbone and dataset included (– where the run did not record it).

An *oracle* row is a method that is given the true class of every new image: a bound on what its
memory could reach, not a method. Other words, among them NC1 to NC4, are in the [glossary]({}).

```console
$ {} --data-root DATA --backbone RESNET50 --out DIR
```

Run again, it goes on where it stopped.
"""
_ROOT = Path(__file__).parents[2]
COLLAPSE = {"NC1": "nc1", "NC2": "nc2", "NC3": "nc3", "NC3V": "nc3_vertices", "NC4": "nc4"}
COLUMNS = ("All", "Base", "Novel", "Seen", "Unseen")
HEADINGS = [
    "row",
    "seeds",
    "S0",
    "S0 by centroid",
    *COLUMNS,
    "forgetting",
    "published All",
    "verified",
    "minutes",
    "MB kept",
    "MB at most",
]


def write_page(benchmark: Benchmark, out: Path, page: Path) -> Path:
    """Write the page, and its pictures beside it, from whatever has been run so far."""
    glossary = Path(os.path.relpath(_ROOT / "docs" / "glossary.md", benchmark.page.parent))
    head = benchmark.about + LEGEND.format(glossary.as_posix(), benchmark.command)
    sections = [section(benchmark, part, out, page.parent) for part in benchmark.parts]
    write_text(page, "\n".join([head, *(text for text in sections if text)]))
    return page


def section(benchmark: Benchmark, part: str, out: Path, pictures: Path) -> str:
    """One part: a summary row per method, then tables or a picture; empty if nothing was run."""
    found = {row: finished(out, part, row) for row in benchmark.parts[part]}
    lines = [line(benchmark.dataset, part, row, runs) for row, runs in found.items() if runs]
    if not lines:
        return ""
    missing = [row.name for row, runs in found.items() if not runs]
    left_out = f"\nNot run yet: {', '.join(missing)}.\n" if missing else ""
    table = [table_line(HEADINGS), table_line(["---"] + ["---:"] * (len(HEADINGS) - 1)), *lines]
    parts = [f"## {TITLES[part]}", "", *table, left_out]
    if part in ("five-stages", "ten-stages"):
        parts += ["", details(out / part)]
    else:
        parts += ["", geometry(found)]
    if part in FIGURES:
        parts += ["", picture(benchmark.dataset, part, out / part, pictures)]
    return "\n".join(parts)


def geometry(found: Mapping[Row, Sequence[RunRecord]]) -> str:
    """Neural collapse on test images, after stage 0 and after the last one, where it was measured.

    NC3 is to the classifier; with a V, of embeddings to the vertices.
    """
    lines = []
    for row, runs in found.items():
        cells = [
            measured([run.records[stage].get(key) for run in runs])
            for stage in (0, -1)
            for key in COLLAPSE.values()
        ]
        if any(cell != "–" for cell in cells):
            lines.append(table_line([row.name, *cells]))
    if not lines:
        return ""
    headings = ["row", *(f"{name} {when}" for when in ("S0", "last") for name in COLLAPSE)]
    rule = ["---"] + ["---:"] * (len(headings) - 1)
    return "\n".join([table_line(headings), table_line(rule), *lines, ""])


def measured(values: Sequence[float | None]) -> str:
    """Mean over seeds of a measure that may be missing."""
    found = [value for value in values if value is not None]
    return f"{mean(found):.2f}" if found else "–"


def details(folder: Path) -> str:
    """Per-stage tables, folded away."""
    tables = "\n\n".join(markdown(table) for table in paper_tables([folder]))
    return f"<details><summary>Per stage</summary>\n\n{tables}\n\n</details>\n"


def picture(dataset: str, part: str, runs: Path, folder: Path) -> str:
    """Draw a part and keep its picture in a folder; empty if the runs are too few for one."""
    with TemporaryDirectory() as drawn:
        write_figures([runs], Path(drawn))
        found = Path(drawn) / f"{FIGURES[part].format(dataset)}.png"
        if not found.exists():
            return ""
        copyfile(found, folder / f"{part}.png")
    return f"![{TITLES[part]}]({part}.png)\n"


def finished(out: Path, part: str, row: Row) -> list[RunRecord]:
    """Finished runs of a row, by seed."""
    folders = sorted(folder_of(out, part, row).glob("seed-*"))
    return [load_run(folder) for folder in folders if (folder / "summary.json").exists()]


def line(dataset: str, part: str, row: Row, runs: Sequence[RunRecord]) -> str:
    """Return a row of the summary table."""
    summaries = [run.summary for run in runs]
    seeds = ",".join(str(summary["seed"]) for summary in summaries)
    averages = [
        mean_and_deviation([summary["average"][key.lower()] for summary in summaries])
        for key in COLUMNS
    ]
    paper = published_all(dataset, part, row, stages=len(runs[0].records) - 1)
    return table_line(
        [
            row.name,
            seeds,
            mean_and_deviation([summary["stage0_all"] for summary in summaries]),
            mean_and_deviation([run.records[0].get("by_centroid") for run in runs]),
            *averages,
            mean_and_deviation([summary["forgetting"]["happy"] for summary in summaries]),
            *(("–", "–") if paper is None else (f"{paper:g}", "no")),
            f"{mean(summary['wall_seconds'] for summary in summaries) / 60:.1f}",
            f"{mean(checkpoint_size(run) for run in runs) / 1e6:.1f}",
            peak(summaries),
        ]
    )


def published_all(dataset: str, part: str, row: Row, stages: int) -> float | None:
    """All of a row in print, averaged over stages; None if nobody has published it."""
    if part == "alignment":
        figures = ablation(dataset, *ALIGNMENTS[row.name])
        return None if figures is None else figures["all"]
    if part == "alpha":
        return confident_share(dataset, float(row.name.partition("=")[2]))
    paper = stage_row(dataset, row.method, stages) if row.published else None
    return None if paper is None else paper.average["all"]


def peak(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Largest resident memory, where it was recorded."""
    found = [one["peak_memory_mb"] for one in summaries if one.get("peak_memory_mb") is not None]
    return f"{max(found):.0f}" if found else "–"


def checkpoint_size(run: RunRecord) -> int:
    """Bytes that the run needs to go on."""
    path = run.folder / "checkpoint.pt"
    if not path.exists():
        raise GoalError(f"{run.folder} has lost its checkpoint.pt.")
    return path.stat().st_size


def table_line(cells: Sequence[str]) -> str:
    """Join cells to a line of Markdown."""
    return f"| {' | '.join(cells)} |"
