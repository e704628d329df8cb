"""Run a benchmark, or what is left of it, and write its page."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from benchmarks.paper.benchmark import Benchmark
from benchmarks.paper.page import write_page
from benchmarks.paper.references import REFERENCES, run_reference
from goal.cli.common import console, errors, integers, reporter
from goal.common.errors import GoalError, pick
from goal.common.progress import Reporter
from goal.runs.grid import Cell, Failure, run_cells


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Request:
    """What of a benchmark to run, and where things are.

    Attributes:
        data_root: Folder that holds the dataset's own folder.
        backbone: A ResNet-50 as a transformers folder or hub id.
        out: Folder for all runs.
        parts: Parts of the benchmark, separated by commas; by default all of them.
        seeds: Training seeds, separated by commas.
        only: Rows to run, separated by semicolons.
        page: Where the tables go; by default beside the benchmark's settings.
        render: Run nothing; write the page from what has been run so far.
    """

    data_root: Path
    backbone: str
    out: Path
    parts: str | None = None
    seeds: str = "0,1,2"
    only: str | None = None
    page: Path | None = None
    render: bool = False


def run_benchmark(benchmark: Benchmark, asked: Request) -> None:
    """Run the experiments that are not finished yet, then write the page."""
    names = list(benchmark.parts) if asked.parts is None else asked.parts.split(",")
    for name in names:
        pick(benchmark.parts, name, "part")
    failures = []
    if not asked.render:
        flags = {"data": {"root": str(asked.data_root)}, "backbone": {"name": asked.backbone}}
        rows = None if asked.only is None else asked.only.split(";")
        todo = benchmark.cells(names, integers(asked.seeds), asked.out, flags, rows)
        failures = run_all(todo, reporter())
    page = write_page(benchmark, asked.out, asked.page or benchmark.page)
    console.print(f"Page: {page}", soft_wrap=True)
    for failure in failures:
        errors.print(f"{failure.title}: {failure.reason}", style="red", markup=False)
    if failures:
        sys.exit(1)


def run_all(cells: Sequence[Cell], progress: Reporter) -> list[Failure]:
    """Run cells in their order, each experiment once: rows that have it too get a copy."""
    failures: list[Failure] = []
    done: dict[str, Path] = {}
    for cell in cells:
        twin = done.get(cell.settings.hash())
        if twin is not None and not cell.folder.exists():
            copy_run(twin, cell.folder)
            continue
        failed = attempt(cell, progress)
        failures += failed
        if not failed:
            done[cell.settings.hash()] = cell.folder
    return failures


def attempt(cell: Cell, progress: Reporter) -> list[Failure]:
    """Run one cell, unless it is finished; return what went wrong."""
    if cell.settings.method.name not in REFERENCES:
        return run_cells([cell], "local", progress)
    progress.say(f"{cell.title} in {cell.folder}")
    try:
        run_reference(cell, progress)
    except GoalError as error:
        return [Failure(cell.title, str(error))]
    return []


def copy_run(source: Path, target: Path) -> None:
    """Copy a run folder, whole or not at all; half a copy lies beside the parts, not in one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.parents[2] / f".copying-{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    unfinished.rename(target)
