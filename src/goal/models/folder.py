"""What can be done with a model without computing: look at its classes, correct them, undo."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.own_images import ImageSet
from goal.models.classes import Roster, class_names
from goal.models.history import Action
from goal.models.nearness import Nearness, nearness
from goal.models.page import page_is_current, stage_pictures, write_page
from goal.models.store import StageRecord, Store


class Entry(NamedTuple):
    """A line of a model's history: what was done, and whether it was undone."""

    id: int
    time: str
    kind: str
    said: str
    undone: bool


class ModelFolder:
    """A model folder, opened. Nothing here needs the backbone, or even torch."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)

    @property
    def records(self) -> list[StageRecord]:
        """Finished steps; an error if the folder holds no model."""
        return self.store.require()

    @property
    def roster(self) -> Roster:
        """The classes, with a person's corrections applied."""
        return Roster(self.records, self.store.judgement(), self.store.sizes())

    def require_unchanged(self) -> None:
        """Raise an error if the model has been taught or extended since it was fitted."""
        if len(self.store.records()) > 1:
            raise self._occupied()

    def require_fits(self, given: ImageSet, names: Sequence[str]) -> None:
        """Raise an error if the model was clearly fitted to other labelled images than these."""
        first = self.store.require()[0]
        count = first.images + first.skipped + first.repeated
        if first.names != class_names(names) or count != len(given) + len(given.skipped):
            raise self._occupied()

    def _occupied(self) -> GoalError:
        return GoalError(
            f"{self.store.folder} holds a model already. Choose another folder, or teach this one "
            "new images by `goal discover`."
        )

    def rename(self, name: str, to: str) -> Action:
        """Call a class by another name; return what was noted, with the name as it is kept."""
        with self.changing():
            return self.store.act(self.roster.renamed(name, to))

    def merge(self, keep: str, others: Sequence[str]) -> Action:
        """Say that other classes are the first one; predictions for any of them come out as it."""
        with self.changing():
            return self.store.act(self.roster.merged(keep, others))

    def unmerge(self, name: str) -> Action:
        """Let a merged class stand for itself again."""
        with self.changing():
            return self.store.act(self.roster.unmerged(name))

    def history(self) -> list[Entry]:
        """Everything that was done, in order, and whether it was undone."""
        self.store.require()
        found = self.store.history()
        holding = {action.id for action in found.holding}
        return [
            Entry(
                line.id,
                line.time,
                line.kind,
                line.said,
                line.kind not in ("undo", "redo") and line.id not in holding,
            )
            for line in found.lines
        ]

    def undo(self, id: int | None = None, stage: bool = False) -> str:
        """Take back the last action (or drop an unfinished step); say what was taken back.

        Args:
            id: One action by its number in `history`, if not the last one.
            stage: The last step rather than the last action, with every correction of its classes.
        """
        if stage and id is not None:
            raise GoalError("Give the number of an action, or ask for the last stage; not both.")
        with self.changing():
            if self.store.plan() is not None and id is None:
                self.store.drop_work()
                return "Dropped the unfinished step; finished stages are as they were."
            self.store.require()
            gone = self.store.undo(stage, id)
            if not gone:
                raise GoalError(
                    "Only the labelled stage is left. To start over, delete the folder "
                    f"{file_name(self.store.folder)}."
                )
            return f"Took back {_listed(gone)}: {self._known()}. `goal redo` brings it back."

    def redo(self) -> str:
        """Do again what the last undo took back; say what that was."""
        with self.changing():
            back = self.store.redo()
            if not back:
                raise GoalError("There is nothing to do again: nothing was undone last.")
            return f"Brought back {_listed(back)}: {self._known()}."

    def _known(self) -> str:
        return f"the model knows {len(self.roster.ids())} classes"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Be the only writer; the page shows the model as it is afterwards."""
        with self.store.writing():
            yield
            self._settle()
            self._redraw()
            self.store.undone()

    def _settle(self) -> None:
        """Count the images of each class anew; only those who compute can."""

    def refresh(self) -> str | None:
        """Draw the page anew if a killed command left it behind; return what is in the way."""
        if self._page_is_current() or not os.access(self.store.folder, os.W_OK):
            return None
        try:
            with self.changing():
                return None
        except GoalError as error:
            return f"The page is not up to date. {error}"

    def _redraw(self) -> None:
        if self.store.records() and not self._page_is_current():
            self.write_page()

    def _page_is_current(self) -> bool:
        return page_is_current(self.store, self.records, self.roster)

    def pictures(self) -> dict[str, list[Image.Image]]:
        """Some images of each discovered class, by its name: the files, or else thumbnails."""
        roster = self.roster
        found: dict[str, list[Image.Image]] = {}
        for record in self.records:
            if record.kind == "discover":
                self.store.require_intact(record.step, "predictions.parquet")
                self.store.require_intact(record.step, "gallery.json")
                for key, images in stage_pictures(self.store, record).items():
                    found.setdefault(roster.names[roster.owner[int(key)]], []).extend(images)
        return found

    def nearness(self) -> Nearness | None:
        """Which classes lie near each other; None where the steps did not say."""
        return nearness(self.store, self.records, self.roster)

    def write_page(self, out: Path | None = None) -> Path:
        """Write ``report.html`` anew, or the same page elsewhere; return its path."""
        for record in self.records:
            if record.kind == "discover":
                self.store.require_intact(record.step, "gallery.json")
        return write_page(self.store, self.records, self.roster, out)


def _listed(actions: Sequence[Action]) -> str:
    return ", ".join(action.said for action in actions)
