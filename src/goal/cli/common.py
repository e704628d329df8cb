"""What all commands share: the consoles, the reporter, and flags turned into settings."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from goal.common.errors import GoalError

if TYPE_CHECKING:
    from goal.cli.terminal import TerminalReporter
    from goal.common.progress import Reporter
    from goal.report.compare import TextTable

# Bytes that move the cursor or hide what follows: control characters, turned-around text.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class HarmlessConsole(Console):
    """A console on which names from strangers cannot steer the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Replace what steers in every text; the console's own controls pass."""
        for segment in super().render(renderable, options):
            harmless = _STEERING.sub("\ufffd", segment.text)
            yield segment if segment.control else Segment(harmless, segment.style)

    def write(self, text: str) -> None:
        """Print a text as it is, but for what steers."""
        self.out(_STEERING.sub("\ufffd", text), highlight=False)


console = HarmlessConsole()
errors = HarmlessConsole(stderr=True)

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
    from goal.cli.terminal import TerminalReporter

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
    from goal.common.progress import Several
    from goal.runs.tensorboard import TensorboardReporter

    live = Several(reporter(), TensorboardReporter(folder / "tensorboard"))
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


def print_tables(
    folders: list[Path], style: str | None, caption: str | None = None, label: str | None = None
) -> None:
    """Print the papers' tables from run folders, in a format or for the terminal."""
    from goal.report.compare import paper_tables
    from goal.report.formats import TIDY, latex_tables, markdown
    from goal.report.tidy import tidy_rows

    if style in TIDY:
        console.write(TIDY[style](tidy_rows(folders)).rstrip("\n"))
        return
    tables = paper_tables(folders)
    if style == "latex":
        console.write(latex_tables(tables, caption, label))
        return
    for table in tables:
        if style is None:
            print_table(table)
        else:
            console.write(markdown(table))


def print_table(content: "TextTable") -> None:
    """Print one table for the terminal."""
    table = Table(*map(escape, content.headings))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in content.rows:
        table.add_row(*map(escape, row))
    console.print(content.title, style="bold", markup=False)
    # At its natural width, however wide: a squeezed table of figures cannot be read.
    HarmlessConsole(width=10_000).print(table)
    console.print(content.note, style="dim", markup=False)
