"""The reporter of the command line: lines, progress bars and tables on a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from goal.common.progress import Item, Reporter
from goal.report.tables import stage_table


class TerminalReporter(Reporter):
    """Lines on the console, and progress bars with an ETA where the console is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._notes: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        """Print a line that stands out."""
        self._console.print(f"Warning: {text}", style="yellow", highlight=False, markup=False)

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        """Show a bar; several may run at once, one inside another."""
        if not self._console.is_terminal:
            yield from items
            return
        bars = self._open_bars()
        identity = bars.add_task(task, total=total, note="")
        try:
            for item in items:
                yield item
                bars.update(identity, advance=1, note=self._notes.get(task, ""))
        finally:
            bars.remove_task(identity)
            self._notes.pop(task, None)
            if not bars.task_ids:
                bars.stop()
                self._bars = None

    def note(self, task: str, text: str) -> None:
        """Keep the text for the bar's next step."""
        self._notes[task] = text

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Print the table of all stages so far."""
        self._console.print(stage_table(records))

    def _open_bars(self) -> Progress:
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("[dim]{task.fields[note]}"),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self._bars
