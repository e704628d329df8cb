"""How many banked views are enough, and what the bank's precision costs in accuracy.

    python -m benchmarks.views --out DIR [--data-root DATA --backbone RESNET50]

Runs GOAL on digits, and on a small part of real CIFAR-100 where its folder and a backbone are
given; then writes VIEWS.md. Run again, it goes on where it stopped.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclopts import App

from benchmarks.speed.timing import machine
from goal.cli.common import console, errors, flags, integers, reporter
from goal.report.compare import mean_and_deviation
from goal.report.runs import load_run
from goal.runs.grid import Cell, run_cells
from goal.settings.recipes import assemble
from goal.storage.files import write_text

VIEWS: tuple[int | str, ...] = (1, 2, 4, 8, "fresh")
PRECISIONS = ("float32", "int8")  # beside float16, the default
BANKS: dict[str, dict[str, Any]] = {
    **{f"{views} views" if views != 1 else "1 view": {"views": views} for views in VIEWS},
    **{f"4 views in {dtype}": {"views": 4, "dtype": dtype} for dtype in PRECISIONS},
}
STUDIES = {"digits": "digits/goal", "cifar100": str(Path(__file__).parent / "views.yaml")}
COLUMNS = ("All", "Base", "Novel")
HEAD = """# Views and precision of the bank

Made by `python -m benchmarks.views --out DIR --data-root DATA --backbone RESNET50`; do not edit.

Every row is the same experiment with another bank: so many augmented views per image are computed
once and drawn from at every step; `fresh` crops anew at every step and runs the whole backbone, as
a script without a bank does. Percent, average over the stages after stage 0, mean and standard
deviation over seeds; views are banked in float16 unless the row says otherwise.

Digits: the shipped recipe. CIFAR-100: real images, 30 of its classes, 64 pixels
([views.yaml](views.yaml)); **its ResNet-50 was trained with ImageNet labels**.
"""
app = App(help=__doc__)


def cells(study: str, seeds: Sequence[int], out: Path, given: dict[str, Any]) -> list[Cell]:
    """Return the experiments of a study."""
    found = []
    for name, bank in BANKS.items():
        for seed in seeds:
            settings = assemble(STUDIES[study], None, None, {**given, "bank": bank, "seed": seed})
            folder = out / study / name.replace(" ", "-") / f"seed-{seed}"
            found.append(Cell(f"{study}: {name}, seed {seed}", settings, folder))
    return found


def section(study: str, out: Path) -> list[str]:
    """Return the table of a study's finished runs; nothing if there are none."""
    lines = []
    backbone = ""
    for name in BANKS:
        folders = sorted((out / study / name.replace(" ", "-")).glob("seed-*"))
        runs = [load_run(folder) for folder in folders if (folder / "summary.json").exists()]
        if not runs:
            continue
        backbone = Path(str(runs[0].summary["backbone"])).name
        averages = [
            mean_and_deviation([run.summary["average"][key.lower()] for run in runs])
            for key in COLUMNS
        ]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(averages)} |")
    if not lines:
        return []
    heading = f"| bank | seeds | {' | '.join(COLUMNS)} |"
    return [f"## {study}, {backbone}", "", heading, "|---|---:|---:|---:|---:|", *lines, ""]


@app.default
def run(
    *,
    out: Path,
    data_root: Path | None = None,
    backbone: str | None = None,
    studies: str | None = None,
    seeds: str = "0,1,2",
    page: Path = Path(__file__).parent / "VIEWS.md",
) -> None:
    """Run what is not finished yet, then write the page.

    Args:
        out: Folder for all runs.
        data_root: Folder that holds cifar-100-python.
        backbone: A ResNet-50 as a transformers folder or hub id.
        studies: digits, cifar100, or both; by default both if there is a backbone.
        seeds: Seeds, separated by commas.
        page: Where the tables go.
    """
    chosen = studies.split(",") if studies else ["digits"] + ["cifar100"] * (backbone is not None)
    todo = []
    for study in chosen:
        given = flags(backbone, data_root) if study == "cifar100" else {}
        todo += cells(study, integers(seeds), out, given)
    failures = run_cells(todo, "local", reporter())
    tables = [line for study in STUDIES for line in section(study, out)]
    write_text(page, "\n".join([HEAD, *tables, *machine()]) + "\n")
    console.print(f"Page: {page}", soft_wrap=True)
    for failure in failures:
        errors.print(f"{failure.title}: {failure.reason}", style="red", markup=False)
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    app()
