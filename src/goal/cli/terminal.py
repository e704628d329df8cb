"""The reporter of the command line: bars on a terminal, a line now and then in a log."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from goal.common.process import Pause
from goal.common.progress import Item, Reporter
from goal.common.wording import duration
from goal.report.tables import stage_line, stage_table

_OFTEN = 10.0  # seconds between two lines of a log, at least ...
_SELDOM = 25.0  # ... and at most, however long a single step of the work takes
_BAR = 40
_OTHERS = 62  # columns of a line beside its bar and its note


class TerminalReporter(Reporter):
    """Lines on the console, and how far work has come: bars with an ETA, or lines in a log."""

    def __init__(self, console: Console, often: float = _OFTEN, seldom: float = _SELDOM) -> None:
        """Show on a console.

        Args:
            console: Where to; whether it is a terminal decides between bars and lines.
            often: Seconds between two lines of a log, at least, when steps of the work end.
            seldom: Seconds between two lines of a log, at most, while there is work.
        """
        self._console = console
        self._bars: Progress | None = None
        self._notes: dict[str, str] = {}
        self._log = _Log(console, often, seldom)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a line that stands out."""
        self._console.print(
            f"Warning: {text}", style="yellow", highlight=False, markup=False, soft_wrap=True
        )

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        """Show how far the items have come; several tasks may run at once, one in another."""
        return (
            self._logged(items, total, task) if self._in_log else self._barred(items, total, task)
        )

    @property
    def _in_log(self) -> bool:
        return not self._console.is_terminal

    def _logged(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        work = _Work(task, total)
        self._log.begin(work)
        try:
            for item in items:
                yield item
                work.note = self._notes.get(task, "")
                self._log.advance(work)
        finally:
            self._log.end(work)
            self._notes.pop(task, None)

    def _barred(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
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
                self.close()

    def note(self, task: str, text: str) -> None:
        """Keep the text for the task's next step."""
        self._notes[task] = text

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Print a line about the last stage."""
        self.say(f"{stage_line(records[-1])}{self._log.where()}")

    def run_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Print the table of all stages."""
        self._console.print(stage_table(records))

    def close(self) -> None:
        """Take the bars away, and end the log's watch."""
        self._log.close()
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _open_bars(self) -> Progress:
        if self._bars is None:
            whole = Column(no_wrap=True)
            bar = max(10, min(_BAR, self._console.width - _OTHERS))
            self._bars = Progress(
                TextColumn("{task.description}", markup=False, table_column=whole),
                BarColumn(bar_width=bar, table_column=whole.copy()),
                MofNCompleteColumn(table_column=whole.copy()),
                TimeElapsedColumn(table_column=whole.copy()),
                TimeRemainingColumn(table_column=whole.copy()),
                _Note(),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self._bars


class _Note(ProgressColumn):
    """What is told beside a bar; the only column that gives way on a narrow terminal."""

    def render(self, task: Task) -> Text:
        """Give the note, cut where the line ends."""
        note = str(task.fields["note"])
        return Text(note, style="dim", no_wrap=True, overflow="ellipsis")


@dataclass
class _Work:
    """A task under way, as a log tells it."""

    name: str
    total: int | None
    done: int = 0
    note: str = ""
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def advance(self) -> None:
        """Count a step that has ended."""
        self.done += 1
        self.last = time.monotonic()

    def told(self) -> str:
        """Say how far it has come, and how long the rest will take at this pace."""
        if not self.total:
            return f"{self.name}: {self.done:,} done"
        text = f"{self.name}: {100 * self.done // self.total}% ({self.done:,} of {self.total:,})"
        if self.done:
            pace = (self.last - self.began) / self.done
            rest = pace * (self.total - self.done) - (time.monotonic() - self.last)
            text += f", {duration(rest)} left"
        return text


class _Log:
    """Tells of tasks under way by lines, whether a step of them ends soon or not."""

    def __init__(self, console: Console, often: float, seldom: float) -> None:
        self._console = console
        self._often, self._seldom = often, seldom
        self._works: list[_Work] = []
        self._told = Pause(often)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def begin(self, work: _Work) -> None:
        with self._lock:
            self._works.append(work)
        if self._watch is None:
            self._told.restart()
            self._over = threading.Event()
            self._watch = threading.Thread(target=self._look, args=(self._over,), daemon=True)
            self._watch.start()

    def advance(self, work: _Work) -> None:
        work.advance()
        if self._told.over():
            self._tell()

    def end(self, work: _Work) -> None:
        with self._lock:
            self._works.remove(work)
            idle = not self._works
        if idle:
            self.close()

    def close(self) -> None:
        self._over.set()
        self._watch = None

    def where(self) -> str:
        """How far the innermost task has come with the step that ends now."""
        with self._lock:
            if not self._works:
                return ""
            self._told.restart()
            work = replace(self._works[-1])  # a copy: the step is not quite over
            work.advance()
            return f" ({work.told()})"

    def _tell(self) -> None:
        with self._lock:
            text = "; ".join(work.told() for work in self._works)
            note = self._works[-1].note if self._works else ""
            self._told.restart()
        if text:
            line = f"{text}; {note}" if note else text
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _look(self, over: threading.Event) -> None:
        """Tell of a step that takes long, until the work is over."""
        while not over.wait(min(1.0, self._seldom / 4)):
            if self._told.passed() >= self._seldom:
                self._tell()
