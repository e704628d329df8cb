"""How many banked views are enough, and what the bank's precision costs in accuracy.

    python -m benchmarks.views [--seeds 0,1,2] [--recipe FILE --data-root FOLDER --backbone NAME]

Without a recipe: digits, which takes minutes. With one, any dataset, such as the reduced CIFAR-100.
Writes VIEWS.md.
"""

import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cyclopts
from rich.console import Console

from benchmarks.speed.timing import machine
from goal.cli.common import integers
from goal.config import Settings, assemble
from goal.files import write_text
from goal.run import start

VIEWS: tuple[int | str, ...] = (1, 2, 4, 8, "fresh")
PRECISIONS = ("float32", "float16", "int8")
_USUAL_VIEWS, _USUAL_PRECISION = 4, "float16"
console = Console()


def accuracies(settings: Settings, folder: Path) -> dict[str, float]:
    """Run once; return the averages over stages after stage 0."""
    average: dict[str, float] = start(settings, folder)["average"]
    return {key: average[key] for key in ("all", "base", "novel")}


def row(label: str, found: list[dict[str, float]]) -> str:
    """Mean and standard deviation over seeds as Markdown."""
    cells = []
    for key in ("all", "base", "novel"):
        values = [one[key] for one in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
    return f"| {label} | {' | '.join(cells)} |"


def main(
    *,
    seeds: str = "0,1,2",
    method: str = "goal",
    recipe: str | None = None,
    data_root: Path | None = None,
    backbone: str | None = None,
    views: str = ",".join(map(str, VIEWS)),
    precisions: str = ",".join(PRECISIONS),
    out: Path = Path("benchmarks/VIEWS.md"),
) -> None:
    """Run the method with different banks and write a table.

    Args:
        seeds: Seeds, separated by commas.
        method: Method to run.
        recipe: Recipe or settings file; by default the shipped one for digits.
        data_root: Folder of the dataset, if it is not embedded.
        backbone: Backbone, if not the recipe's.
        views: Numbers of banked views, or fresh.
        precisions: Number formats of the bank, at four views.
        out: File to write.
    """
    flags: dict[str, Any] = {}
    if data_root is not None:
        flags["data"] = {"root": str(data_root)}
    if backbone is not None:
        flags["backbone"] = {"name": backbone}
    counts = [int(text) if text.isdigit() else text for text in views.split(",")]
    banks = [(f"{count} views", {"views": count, "dtype": _USUAL_PRECISION}) for count in counts]
    banks += [
        (f"{_USUAL_VIEWS} views, {dtype}", {"views": _USUAL_VIEWS, "dtype": dtype})
        for dtype in precisions.split(",")
        if dtype
    ]
    lines = ["| bank | All | Base | Novel |", "|---|---:|---:|---:|"]
    with TemporaryDirectory() as folder:
        for number, (label, bank) in enumerate(banks):
            found = []
            for seed in integers(seeds):
                layer = {**flags, "bank": {**bank, "folder": f"{folder}/cache"}, "seed": seed}
                dataset = None if recipe else "digits"
                settings = assemble(recipe, dataset, method, layer)
                found.append(accuracies(settings, Path(folder) / f"{number}-{seed}"))
            lines.append(row(label, found))
            console.print(lines[-1], markup=False, soft_wrap=True)
    command = " ".join(["python -m benchmarks.views", *sys.argv[1:]])
    head = [
        "# Views and precision of the bank",
        "",
        f"`{command}`",
        "",
        f"Percent, average over the stages after stage 0, mean and standard deviation over seeds "
        f"{seeds}. Method: {method}. Dataset: {settings.data.name}. Backbone: "
        f"{settings.backbone.name}.",
        "",
        *machine(),
        "",
    ]
    write_text(out, "\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    cyclopts.run(main)
