"""What it costs to extend the simplex late instead of making it large at once.

    python -m benchmarks.expansion [--seeds 0,1,2]

GOAL on digits: 6 vertices that double when they run out, before stage 2, against 12 from the
start, 10 (all classes of the protocol), and 64 (as many as fit).
"""

import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cyclopts
from rich.console import Console
from rich.table import Table

from goal.cli.common import integers
from goal.numerics.simplex import VertexLedger
from goal.runs.run import start
from goal.settings.recipes import assemble

ARMS: dict[str, tuple[str, ...]] = {
    "6, extended to 12": ("method.num_vertices=6", "method.expand_vertices=true"),
    "12": ("method.num_vertices=12",),
    "10": ("method.num_vertices=10",),
    "64": ("method.num_vertices=64",),
}
MEASURES = ("all", "base", "novel")


def run(assignments: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Run GOAL on digits once; return its averages over stages 1-3."""
    settings = assemble("digits/goal", None, None, {"seed": seed}, assignments)
    with TemporaryDirectory() as folder:
        average: dict[str, Any] = start(settings, Path(folder) / "run")["average"]
    return average


def main(*, seeds: str = "0,1,2") -> None:
    """Print accuracies by number of vertices, and by how much owned vertices turn.

    Args:
        seeds: Seeds, separated by commas.
    """
    console = Console(width=120)
    ledger = VertexLedger(6, 64, seed=0)
    ledger.owners.copy_(ledger.owners.new_tensor(range(6)))
    console.print(f"6 owned vertices turn by {float(ledger.extend(12).max()):.1f} degrees")
    table = Table("vertices", *MEASURES)
    for name, assignments in ARMS.items():
        found = [run(assignments, seed) for seed in integers(seeds)]
        cells = []
        for measure in MEASURES:
            values = [average[measure] for average in found]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {deviation:.1f}")
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    cyclopts.run(main)
