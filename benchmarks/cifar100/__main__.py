"""Run the benchmark, or what is left of it, and write its page.

    python -m benchmarks.cifar100 --data-root DATA --backbone RESNET50 --out DIR

Run again, it goes on where it stopped; several processes may work on different seeds at a time.
"""

import sys
from pathlib import Path

from cyclopts import App

from benchmarks.cifar100.grid import PARTS, cells
from benchmarks.cifar100.page import write_page
from benchmarks.cifar100.references import REFERENCES, run_reference
from goal.cli.common import console, errors, integers, reporter
from goal.runs.grid import run_cells

app = App(help=__doc__)


@app.default
def run(
    *,
    data_root: Path,
    backbone: str,
    out: Path,
    parts: str = ",".join(PARTS),
    seeds: str = "0,1,2",
    only: str | None = None,
    page: Path = Path(__file__).parent / "REPRODUCTION.md",
) -> None:
    """Run the experiments that are not finished yet, then write the page.

    Args:
        data_root: Folder that holds cifar-100-python.
        backbone: A ResNet-50 as a transformers folder or hub id.
        out: Folder for all runs.
        parts: Parts of the benchmark, separated by commas.
        seeds: Training seeds, separated by commas.
        only: Rows to run, separated by commas.
        page: Where the tables go.
    """
    flags = {"data": {"root": str(data_root)}, "backbone": {"name": backbone}}
    rows = None if only is None else only.split(",")
    todo = [
        cell for part in parts.split(",") for cell in cells(part, integers(seeds), out, flags, rows)
    ]
    references = [cell for cell in todo if cell.settings.method.name in REFERENCES]
    failures = run_cells([cell for cell in todo if cell not in references], "local", reporter())
    for cell in references:
        run_reference(cell, reporter())
    console.print(f"Page: {write_page(out, page)}", soft_wrap=True)
    for failure in failures:
        errors.print(f"{failure.title}: {failure.reason}", style="red", markup=False)
    if failures:
        sys.exit(1)


app()
