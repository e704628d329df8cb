"""Grids of experiments: every cell a run folder, one failure never stops the others."""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.runs.run import start
from goal.settings.plain import merge, parse_assignments
from goal.settings.recipes import assemble
from goal.settings.settings import Settings, compose
from goal.storage.cache import cache_folder

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Cell:
    """One experiment of a grid."""

    title: str
    settings: Settings
    folder: Path


@dataclass(frozen=True)
class Failure:
    """A cell that did not finish, and why."""

    title: str
    reason: str


def grid(
    methods: Sequence[str],
    datasets: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    flags: Mapping[str, Any],
    assignments: Sequence[str] = (),
) -> list[Cell]:
    """Cross methods, datasets and seeds; each pair starts from its shipped recipe, if it has one.

    An assignment under ``method.`` applies to the methods that have that key; one that no method
    of the grid has is an error.
    """
    cells = []
    used: set[str] = set()
    for dataset, method in product(datasets, methods):
        mine = [text for text in assignments if _applies(text, dataset, method)]
        used.update(mine)
        for seed in seeds:
            settings = assemble(None, dataset, method, {**flags, "seed": seed}, mine)
            cells.append(
                Cell(
                    f"{dataset}/{method}/seed-{seed}", settings, _place(out, dataset, method, seed)
                )
            )
    if unused := [text for text in assignments if text not in used]:
        raise GoalError(f"No method of the grid has the setting of --set {unused[0]}.")
    return cells


def _place(out: Path, dataset: str, method: str, seed: int) -> Path:
    return out / dataset / method / f"seed-{seed}"


def _applies(assignment: str, dataset: str, method: str) -> bool:
    key = assignment.partition("=")[0]
    if not key.startswith("method."):
        return True
    known = assemble(None, dataset, method, {}).method
    return key.removeprefix("method.") in type(known).model_fields


def sweep_cells(
    key: str, values: Sequence[str], base: Settings, seeds: Sequence[int], out: Path
) -> list[Cell]:
    """Vary one setting: a cell for each of its values (texts, read as YAML) and each seed."""
    cells = []
    for value, seed in product(values, seeds):
        tree = merge(base.plain(), parse_assignments([f"{key}={value}", f"seed={seed}"]))
        settings = compose(tree)
        place = out / quote(f"{key}={value}", safe="=") / f"seed-{seed}"
        cells.append(Cell(f"{key}={value}, seed {seed}", settings, place))
    return cells


def run_cells(
    cells: Sequence[Cell], engine: Engine, reporter: Reporter, cpus_per_cell: float = 1
) -> list[Failure]:
    """Run all cells, skipping finished ones; return those that failed."""
    if engine == "ray":
        return _run_on_ray(cells, reporter, cpus_per_cell)
    outcomes = []
    for number, cell in enumerate(reporter.track(cells, len(cells), "Experiments"), 1):
        reporter.say(f"Cell {number} of {len(cells)}: {cell.title} in {cell.folder}")
        outcomes.append(_attempt(cell, reporter))
    return _failures(cells, outcomes)


def _attempt(cell: Cell, reporter: Reporter) -> str | None:
    """Run a cell; return what went wrong, None if nothing did."""
    try:
        start(cell.settings, cell.folder, reporter)
    except GoalError as error:
        return str(error)
    except Exception:  # a defect in one method must not cost the night's other results
        return traceback.format_exc()
    return None


def _failures(cells: Iterable[Cell], outcomes: Iterable[str | None]) -> list[Failure]:
    pairs = zip(cells, outcomes, strict=True)
    return [Failure(cell.title, reason) for cell, reason in pairs if reason is not None]


def _run_on_ray(cells: Sequence[Cell], reporter: Reporter, cpus: float) -> list[Failure]:
    """Run cells as Ray tasks, on this machine or on the cluster that RAY_ADDRESS names."""
    try:
        import ray
    except ImportError:
        raise GoalError("--engine ray needs Ray: pip install 'goal-cgcd[ray]'.") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    gpus = 1 if any(cell.settings.device.startswith("cuda") for cell in cells) else 0
    attempt: Callable[..., Any] = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(
        _attempt_quietly
    ).remote
    tasks = [attempt(_absolute(cell), cpus) for cell in cells]
    outcomes = []
    for number, task in enumerate(reporter.track(tasks, len(tasks), "Experiments"), 1):
        try:
            outcomes.append(ray.get(task))
        except ray.exceptions.RayError as error:
            outcomes.append(str(error))
        how = "failed" if outcomes[-1] is not None else "done"
        reporter.say(f"Cell {number} of {len(cells)}: {cells[number - 1].title}: {how}")
    return _failures(cells, outcomes)


def _absolute(cell: Cell) -> Cell:
    """Make places absolute: workers have another working directory."""
    root = str(Path(cell.settings.data.root).expanduser().resolve())
    folder = str(cache_folder(cell.settings.bank.folder).resolve())
    settings = cell.settings.model_copy(
        update={
            "data": cell.settings.data.model_copy(update={"root": root}),
            "bank": cell.settings.bank.model_copy(update={"folder": folder}),
        }
    )
    return Cell(cell.title, settings, cell.folder.resolve())


def _attempt_quietly(cell: Cell, cpus: float) -> str | None:
    import torch

    torch.set_num_threads(max(1, int(cpus)))
    return _attempt(cell, Reporter())
