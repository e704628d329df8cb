"""What all commands share: the consoles, the reporter, and flags turned into settings."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from goal.common.errors import GoalError, did_you_mean

if TYPE_CHECKING:
    from goal.cli.terminal import TerminalReporter
    from goal.common.progress import Reporter
    from goal.report.compare import TextTable

# Bytes that move the cursor or hide what follows: control characters, turned-around text; and
# halves of characters, which stand for bytes that are no text.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAINER = str.maketrans({"–": "-", "±": "+-", "…": "...", "×": "x", "·": "-"})


class HarmlessConsole(Console):
    """A console on which names from strangers cannot steer the terminal.

    A text is printed as it is: square brackets are no markup, whoever prints them. What a terminal
    cannot show is spelt out, so that printing never fails.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Take a text for what it is, also where a caller asks for markup."""
        return super().render_str(self._shown(text), **{**options, "markup": False, "emoji": False})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Replace what steers in every text; the console's own controls pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(self._shown(segment.text), segment.style)

    def write(self, text: str) -> None:
        """Print a text as it is, but for what steers."""
        self.out(self._shown(text), highlight=False)

    def say(self, text: str) -> None:
        """Print a line and let the terminal break it, so that paths can be copied."""
        self.print(text, soft_wrap=True)

    def _shown(self, text: str) -> str:
        harmless = _STEERING.sub("\ufffd", text)
        try:
            harmless.encode(self.encoding)
        except UnicodeEncodeError:
            plainer = harmless.translate(_PLAINER).encode(self.encoding, "backslashreplace")
            return plainer.decode(self.encoding)
        return harmless


console = HarmlessConsole()
errors = HarmlessConsole(stderr=True)
ending = ExitStack()  # what ends with the command, however it ends

LOGGERS = ("tensorboard", "wandb", "mlflow")
Log = Annotated[
    tuple[str, ...],
    Parameter(
        name="--log",
        negative=(),
        consume_multiple=True,
        help="Also write live curves: tensorboard, wandb, mlflow, or several of them. Nothing "
        "leaves the machine.",
    ),
]
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

    made = TerminalReporter(console)
    ending.callback(made.close)
    return made


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
def logging(log: Sequence[str], folder: Path) -> Iterator["Reporter"]:
    """Give a run's reporter, which also writes live curves into the folder if asked to."""
    from goal.common.progress import Several
    from goal.runs.loggers import make_logger

    names = dict.fromkeys(name for text in log for name in text.split(","))
    for name in names:
        if name not in LOGGERS:
            raise GoalError(
                f"Cannot log to '{name}'.{did_you_mean(name, LOGGERS)} "
                f"Choose of: {', '.join(LOGGERS)}."
            )
    made = [make_logger(name, folder) for name in names] if not rank() else []
    for logger in made:
        console.say(f"Live curves: {logger.how_to_look}")
    live = Several(reporter(), *made)
    try:
        yield live
    finally:
        live.close()


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Within a run: note how to go on with it on an interruption that ends it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if (folder / "settings.yaml").is_file():
            stop.add_note(shlex.join(["goal", "resume", str(folder)]))
        raise


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
    table = Table(*content.headings)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in content.rows:
        table.add_row(*row)
    console.print(content.title, style="bold")
    # At its natural width, however wide: a squeezed table of figures cannot be read.
    HarmlessConsole(width=10_000).print(table)
    console.print(content.note, style="dim")
