"""What can be done with a model without computing: look at its classes, correct them, undo."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from goal.common.errors import GoalError
from goal.models.classes import Roster
from goal.models.page import stage_pictures, write_page
from goal.models.store import Judgement, StageRecord, Store


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
        return Roster(self.records, self.store.judgement())

    def rename(self, name: str, to: str) -> None:
        """Call a class by another name."""
        with self.store.writing():
            self._judge(self.roster.renamed(name, to))

    def merge(self, keep: str, others: Sequence[str]) -> None:
        """Say that other classes are the first one; predictions for any of them come out as it."""
        with self.store.writing():
            self._judge(self.roster.merged(keep, others))

    def unmerge(self, name: str) -> None:
        """Let a merged class stand for itself again."""
        with self.store.writing():
            self._judge(self.roster.unmerged(name))

    def _judge(self, judgement: Judgement) -> None:
        self.store.judge(judgement)
        self.write_page()

    def undo(self) -> str:
        """Take back the last step (or drop an unfinished one); say what was done."""
        with self.store.writing():
            if self.store.plan() is not None:
                self.store.drop_work()
                return "Dropped the unfinished step; finished stages are as they were."
            last = self.records[-1]
            if last.step == 0:
                raise GoalError(
                    "Only the labelled stage is left. To start over, delete the folder "
                    f"{self.store.folder}."
                )
            self.store.undo()
            self.write_page()
            what = "the added vertices" if last.kind == "extend" else f"stage {last.index}"
            return f"Took back {what}: the model knows {last.num_known} classes."

    def pictures(self) -> dict[str, list[Image.Image]]:
        """Some images of each discovered class, by its name: the files, or else thumbnails."""
        roster = self.roster
        found: dict[str, list[Image.Image]] = {}
        for record in self.records:
            if record.kind == "discover":
                for key, images in stage_pictures(self.store, record).items():
                    found.setdefault(roster.names[roster.owner[int(key)]], []).extend(images)
        return found

    def write_page(self, out: Path | None = None) -> Path:
        """Write ``report.html`` anew, or the same page elsewhere; return its path."""
        return write_page(self.store, self.records, self.roster, out)
