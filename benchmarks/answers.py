"""Accuracy against the number of questions that a person answers about each stage.

    python -m benchmarks.answers --out DIR [--recipe FILE --data-root FOLDER --backbone NAME]
                                 [--queries 0,5,10,20,50,100] [--seeds 0,1,2] [--rehearsal 0]
                                 [--picture FILE]

GOAL+ asks a simulated person about images of each stage, telling ones first or in random order,
and is scored on test images as ever; the oracle is given the true class of every new image.
Printed is average All over the stages, mean and standard deviation of the seeds. Run again, it goes
on where it stopped.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import cyclopts
import numpy as np
from rich.console import Console

from benchmarks.paper import references
from goal.cli.common import flags, integers
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.runs.grid import Cell
from goal.runs.records import read_summary
from goal.runs.run import start
from goal.settings.recipes import assemble

console = Console(width=120)
ORDERS = ("telling", "random")
Curve = dict[int, list[float]]


def score(cell: Cell) -> float:
    """Average All of an experiment, run unless it is there."""
    if not (cell.folder / "summary.json").exists():
        if cell.settings.method.name in references.REFERENCES:
            references.run_reference(cell, Reporter())
        else:
            start(cell.settings, cell.folder)
    return float(read_summary(cell.folder)["average"]["all"])


def told(mean: Sequence[float]) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(mean):.1f} ± {np.std(mean):.1f}"


def markdown(curves: dict[str, Curve], bound: Sequence[float]) -> str:
    """The table: a row per number of questions, and how much of the gap to the oracle is closed."""
    none = float(np.mean(curves["telling"][0]))
    gap = float(np.mean(bound)) - none
    lines = [
        "| questions per stage | telling ones first | random order | of the gap |",
        "|---:|---:|---:|---:|",
    ]
    for count, values in curves["telling"].items():
        other = curves["random"].get(count)
        closed = f"{100 * (float(np.mean(values)) - none) / gap:.0f}%" if gap and count else ""
        lines.append(f"| {count} | {told(values)} | {told(other) if other else ''} | {closed} |")
    return "\n".join([*lines, f"| oracle | {told(bound)} | | |"])


def draw(curves: dict[str, Curve], bound: Sequence[float], path: Path) -> None:
    """The curves as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        counts = sorted(curve)
        means, spread = ([f(curve[c]) for c in counts] for f in (np.mean, np.std))
        axes.errorbar(counts, means, spread, marker="o", capsize=2, label=f"{name} order")
    axes.axhline(float(np.mean(bound)), linestyle="--", color="gray", label="oracle")
    axes.set_xlabel("questions answered per stage")
    axes.set_ylabel("average accuracy (All, %)")
    axes.legend()
    figure.savefig(path, dpi=150)


def main(
    *,
    out: Path,
    recipe: str = "digits/goal-plus",
    data_root: Path | None = None,
    backbone: str | None = None,
    queries: str = "0,5,10,20,50,100",
    seeds: str = "0,1,2",
    rehearsal: int = 0,
    picture: Path | None = None,
) -> None:
    """Run what is not there yet, then print the table.

    Args:
        out: Folder for all runs.
        recipe: Settings of the protocol, transform and backbone.
        data_root: Folder that holds the dataset.
        backbone: Backbone, where the recipe names none.
        queries: Numbers of questions per stage.
        seeds: Seeds.
        rehearsal: Stages of base classes that play the novel ones; 0 takes the novel ones.
        picture: Where to draw the curves.
    """
    references.register()

    def cell(name: str, seed: int, method: str, *changed: str) -> Cell:
        more = [*changed, f"protocol.rehearsal={rehearsal}", f"seed={seed}"]
        settings = assemble(recipe, None, method, flags(backbone, data_root), more)
        return Cell(name, settings, out / name / f"seed-{seed}")

    curves: dict[str, Curve] = {order: {} for order in ORDERS}
    bound: list[float] = []
    for seed in integers(seeds):
        bound.append(score(cell("oracle", seed, "goal-plus-oracle", references.CERTAIN)))
        for count in integers(queries):
            for order in ORDERS if count else ORDERS[:1]:
                asked = [f"protocol.queries={count}", f"method.asking={order}"]
                found = score(cell(f"{order}-{count}", seed, "goal-plus", *asked))
                curves[order].setdefault(count, []).append(found)
                console.print(f"seed {seed}, {count} questions, {order}: {found:.2f}")
    console.print(markdown(curves, bound))
    if picture is not None:
        draw(curves, bound, picture)


if __name__ == "__main__":
    try:
        cyclopts.run(main)
    except GoalError as error:
        console.print(str(error), style="red")
        sys.exit(1)
