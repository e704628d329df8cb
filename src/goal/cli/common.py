"""What all commands share: the consoles, the reporter, and flags turned into settings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from goal.errors import GoalError

if TYPE_CHECKING:
    from goal.progress import Reporter, TerminalReporter
    from goal.report.compare import TextTable

console = Console()
errors = Console(stderr=True)

Log = Literal["tensorboard"] | None
Set = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative=(),
        consume_multiple=True,
        help="Override settings: key.sub=value, as often as you like.",
    ),
]


def reporter() -> "TerminalReporter":
    """Return the reporter of commands: lines, and bars where there is a terminal."""
    from goal.progress import TerminalReporter

    return TerminalReporter(console)


def rank() -> int | None:
    """Return which of several processes of torchrun this is; None if it is the only one."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return int(os.environ.get("RANK", "0")) if several else None


def refuse_ranks(command: str) -> None:
    """Raise an error if torchrun started this command, which runs in one process."""
    if rank() is not None:
        raise GoalError(
            f"`goal {command}` runs in one process. Under torchrun use `goal run` or `goal resume`."
        )


@contextmanager
def logging(log: Log, folder: Path) -> Iterator["Reporter"]:
    """Give a run's reporter, which also writes live curves into the folder if asked to."""
    if log is None:
        yield reporter()
        return
    from goal.live import TensorboardReporter

    live = TensorboardReporter(reporter(), folder / "tensorboard")
    console.print(f"Live curves: tensorboard --logdir {folder}", soft_wrap=True, highlight=False)
    try:
        yield live
    finally:
        live.close()


def flags(
    backbone: str | None = None,
    data_root: Path | None = None,
    *,
    seed: int | None = None,
    device: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
    """Turn command-line flags that were given into settings."""
    flags: dict[str, Any] = {"data": {"download": True} if download else {}}
    if data_root is not None:
        flags["data"]["root"] = str(data_root)
    if backbone is not None:
        flags["backbone"] = {"name": backbone}
    if seed is not None:
        flags["seed"] = seed
    if device is not None:
        flags["device"] = device
    return flags


def integers(text: str) -> list[int]:
    """Read numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise GoalError(f"Cannot read {text!r}: write numbers separated by commas.") from None


def print_tables(folders: list[Path], style: str | None) -> None:
    """Print the papers' tables from run folders, in a format or for the terminal."""
    from goal.report.compare import paper_tables
    from goal.report.formats import FORMATS

    for table in paper_tables(folders):
        if style is None:
            print_table(table)
        else:
            console.out(FORMATS[style](table), highlight=False)


def print_table(content: "TextTable") -> None:
    """Print one table for the terminal."""
    table = Table(*content.headings)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in content.rows:
        table.add_row(*row)
    console.print(content.title, style="bold", markup=False)
    # At its natural width, however wide: a squeezed table of figures cannot be read.
    Console(width=10_000).print(table)
    console.print(content.note, style="dim", markup=False)
