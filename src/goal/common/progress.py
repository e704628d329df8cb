"""How long-running code tells the user what it does; silent unless given a listener."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class Reporter:
    """Says nothing. The library's default, and the base of every other reporter."""

    def say(self, text: str) -> None:
        """Tell a fact worth a line."""

    def warn(self, text: str) -> None:
        """Tell of something that went wrong and was mended."""

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        """Pass `items` through while showing how far they have come."""
        yield from items

    def note(self, task: str, text: str) -> None:
        """Show a short text, such as the current loss, beside a running task."""

    def epoch_done(self, record: Mapping[str, Any], step: int) -> None:
        """Take the mean loss terms of an epoch; `step` counts epochs over all stages."""

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Show the results of the stages so far."""

    def run_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Show the results of all stages of a finished run."""

    def close(self) -> None:
        """Finish what is still being written."""


class Several(Reporter):
    """Tells several reporters the same."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def say(self, text: str) -> None:
        """Tell a fact worth a line."""
        for reporter in self._reporters:
            reporter.say(text)

    def warn(self, text: str) -> None:
        """Tell of something that went wrong and was mended."""
        for reporter in self._reporters:
            reporter.warn(text)

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        """Pass `items` through all of them."""
        for reporter in self._reporters:
            items = reporter.track(items, total, task)
        yield from items

    def note(self, task: str, text: str) -> None:
        """Show a short text beside a running task."""
        for reporter in self._reporters:
            reporter.note(task, text)

    def epoch_done(self, record: Mapping[str, Any], step: int) -> None:
        """Take the mean loss terms of an epoch."""
        for reporter in self._reporters:
            reporter.epoch_done(record, step)

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Show the results of the stages so far."""
        for reporter in self._reporters:
            reporter.stage_done(records)

    def run_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Show the results of all stages of a finished run."""
        for reporter in self._reporters:
            reporter.run_done(records)

    def close(self) -> None:
        """Finish what is still being written."""
        for reporter in self._reporters:
            reporter.close()
