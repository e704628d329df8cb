"""Measure GOAL+'s discovery and counting, or what of it is left to measure, and print the tables.

    python -m benchmarks.discovery --data-root DATA --backbone RESNET50 --out DIR
                                   [--parts rehearsals,counts,digits,cifar100,cub]
                                   [--seeds 0,1,2] [--draws 2] [--test-per-class 20]

Features are computed once and kept in DIR, and so is every result: run again, it goes on where it
stopped. Rehearsals let base classes play new ones and look at no test image.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App, Parameter
from rich.table import Table

from benchmarks.discovery.counting import Pile, Pool
from benchmarks.discovery.features import featured
from benchmarks.discovery.rehearsals import KINDS, rehearsed
from benchmarks.discovery.running import WAYS, as_run, run
from goal.cli.common import console, flags, integers, reporter
from goal.common.errors import GoalError
from goal.data.images import Dataset
from goal.settings.recipes import assemble
from goal.settings.settings import Settings
from goal.storage.files import read_json, write_json

app = App(help=__doc__)
STAGES = {"digits": (3,), "cifar100": (5, 10), "cub": (5, 10)}
PARTS = ("rehearsals", "counts", *STAGES)
_EMPTY = 40  # draws in which nothing is new

Load = Callable[[str], tuple[Dataset, Settings]]
Task = tuple[str, Callable[[], dict[str, Any]]]


@app.default
def measure(
    *,
    data_root: Path,
    backbone: str,
    out: Path,
    parts: str = ",".join(PARTS),
    seeds: str = "0,1,2",
    draws: int = 2,
    test_per_class: Annotated[int | None, Parameter(help="Test images of each class.")] = None,
) -> None:
    """Measure what has not been measured yet, then print all of it.

    Args:
        data_root: Folder that holds the datasets' own folders.
        backbone: A ResNet-50 as a transformers folder or hub id.
        out: Folder for features and results.
        parts: What to measure, separated by commas.
        seeds: Seeds of runs, separated by commas.
        draws: Draws of each rehearsal, and of each number of new classes.
        test_per_class: Test images of each class; by default all.
    """
    chosen = parts.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise GoalError(f"No part {', '.join(sorted(unknown))}. There are {', '.join(PARTS)}.")

    @cache
    def load(name: str) -> tuple[Dataset, Settings]:
        settings = _settings(name, data_root, backbone, test_per_class)
        return featured(settings, STAGES[name], out / "features" / name, reporter()), settings

    tasks: list[Task] = []
    for part in chosen:
        if part == "rehearsals":
            tasks += _rehearsals(load, draws)
        elif part == "counts":
            tasks += _counts(load, draws)
        else:
            tasks += _runs(load, part, integers(seeds))
    results: dict[str, dict[str, Any]] = {}
    for name, work in reporter().track(tasks, len(tasks), "Measuring"):
        path = out / "results" / f"{name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, work())
        results[name] = read_json(path)
    _show(results)


def _settings(name: str, data_root: Path, backbone: str, test_per_class: int | None) -> Settings:
    if name == "digits":
        return assemble("digits/goal-plus", None, None, {}, [])
    setting = Path(__file__).parents[1] / name / "setting.yaml"
    fewer = [] if test_per_class is None else [f"protocol.test_per_class={test_per_class}"]
    return assemble(str(setting), None, "goal-plus", flags(backbone, data_root), fewer)


def _runs(load: Load, name: str, seeds: list[int]) -> Iterator[Task]:
    for stages in STAGES[name]:
        for way in WAYS:
            for seed in seeds:

                def work(stages: int = stages, way: str = way, seed: int = seed) -> dict[str, Any]:
                    dataset, settings = load(name)
                    protocol = settings.protocol.model_copy(update={"stages": stages})
                    settings = settings.model_copy(update={"protocol": protocol, "seed": seed})
                    return asdict(run(as_run(dataset, settings), settings, way))

                yield f"{name}-{stages}/{way}/{seed}", work


def _rehearsals(load: Load, draws: int) -> Iterator[Task]:
    for kind in KINDS:
        for way in WAYS:
            for draw in range(draws):

                def work(kind: Any = kind, way: str = way, draw: int = draw) -> dict[str, Any]:
                    dataset, settings = load(kind.dataset)
                    return asdict(run(rehearsed(kind, dataset, settings, draw), settings, way))

                yield f"rehearsal-{kind.name.replace(' ', '-')}/{way}/{draw}", work


def _counts(load: Load, draws: int) -> Iterator[Task]:
    """Counts among rehearsed classes (``-rehearsed``) and among the true novel ones."""
    for name, rehearsing, most in (("digits", 2, 6), ("cifar100", 30, 20)):
        for known in (rehearsing, None):
            for pile in _piles(most if known is None or name != "digits" else 2):
                for draw in range(draws if pile.new else _EMPTY):

                    def work(
                        name: str = name, known: int | None = known, p: Pile = pile, d: int = draw
                    ) -> dict[str, Any]:
                        dataset, settings = load(name)
                        count = Pool(dataset, settings, known, d).count(p, d)
                        return {"count": count, "new": p.new}

                    kind = f"{name}{'' if known is None else '-rehearsed'}"
                    sizes = f"{pile.images}{'-uneven' if pile.uneven else ''}"
                    yield f"counts-{kind}/{pile.new:02d}-of-{sizes}/{draw}", work


def _piles(most: int) -> Iterator[Pile]:
    yield Pile(0, 0, False, 6)
    for new in (2, 5, 10, 20):
        for images in (25, 80) if new <= most else ():
            yield Pile(new, images, False, 6)
            yield Pile(new, images, True, 6)


def _show(results: dict[str, dict[str, Any]]) -> None:
    scores = Table("Stages", "GOAL+ is", "All / Base / Novel", "Forgetting", "Counted")
    counts = Table("Stage", "Classes", "Counted", "Mean error", "Mean absolute error")
    for group in dict.fromkeys(name.rsplit("/", 1)[0] for name in results):
        rows = [row for name, row in results.items() if name.rsplit("/", 1)[0] == group]
        first, second = group.split("/")
        if "count" in rows[0]:
            off = np.array([row["count"] - row["new"] for row in rows])
            found = " ".join(str(row["count"]) for row in rows)
            counts.add_row(first, second, found, f"{off.mean():+.1f}", f"{abs(off).mean():.1f}")
            continue
        means = {key: np.mean([row[key] for row in rows]) for key in rows[0] if key != "counted"}
        accuracies = " / ".join(f"{means[key]:.1f}" for key in ("all", "base", "novel"))
        counted = "; ".join(" ".join(map(str, row["counted"])) for row in rows)
        scores.add_row(first, second, accuracies, f"{means['forgetting']:.1f}", counted)
    for table in (scores, counts):
        if table.row_count:
            console.print(table)


if __name__ == "__main__":
    app()
