"""Predictions and skipped files as tables: CSV for spreadsheets, Parquet for programs."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from goal.common.arrays import BoolArray, IntArray
from goal.common.errors import GoalError
from goal.common.escaping import csv_cell, file_name
from goal.data.own_images import ImageSet
from goal.models.classes import Roster
from goal.storage import files

if TYPE_CHECKING:
    from goal.models.looking import Seen

UNKNOWN = "unknown"
NONE = -1  # id of no class at all


@dataclass(frozen=True)
class Predictions:
    """What a model makes of images.

    Attributes:
        names: The images.
        ids: Class id of each, merged classes counted as one; -1 for none of them.
        confidence: Probability of that class; of no class, the share of known images that are
            less far from all classes.
        roster: The classes.
        latest: The model's latest stage, whose classes are the new ones.
        skipped: Images that could not be read, and why.
        second: Id of the second-best class, of the nearest one for no class; -1 where there is
            none.
        second_confidence: Its probability.
    """

    names: list[str]
    ids: IntArray
    confidence: npt.NDArray[np.float64]
    roster: Roster
    latest: int
    skipped: list[tuple[str, str]]
    second: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    second_confidence: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        """Without second-best classes, say so for each image."""
        if len(self.second) != len(self.ids):
            object.__setattr__(self, "second", np.full(len(self.ids), NONE))
            object.__setattr__(self, "second_confidence", np.zeros(len(self.ids)))

    @classmethod
    def join(
        cls,
        batches: "Iterable[Seen]",
        kept: ImageSet,
        roster: Roster,
        latest: int,
        unknown: float | None = None,
    ) -> Self:
        """Join batches of what was seen.

        Args:
            batches: What was seen, classes as positions among `Roster.columns`.
            kept: The images.
            roster: The classes.
            latest: The model's latest stage.
            unknown: Share of known images that may come out as of no class; None for none.
        """
        parts = list(batches)

        def column(number: int) -> npt.NDArray[np.float64]:
            whole = [np.asarray(part[number], np.float64) for part in parts]
            return np.concatenate([np.empty(0), *whole])

        ids = np.array([*roster.columns(), NONE], dtype=np.int64)
        best, second = (ids[column(number).astype(np.int64)] for number in (0, 2))
        strange = column(4)
        found = cls(kept.names, best, column(1), roster, latest, kept.skipped, second, column(3))
        return found if unknown is None else found.refusing(strange < unknown, 1 - strange)

    def refusing(self, out: BoolArray, sure: npt.NDArray[np.float64]) -> Self:
        """The same with some images of no class, so sure; their best class becomes the second."""
        return replace(
            self,
            ids=np.where(out, NONE, self.ids),
            confidence=np.where(out, sure, self.confidence),
            second=np.where(out, self.ids, self.second),
            second_confidence=np.where(out, self.confidence, self.second_confidence),
        )

    def without_junk(self) -> Self:
        """The same with images of no class in the place of those of classes that are junk."""
        junk = self.roster.judgement.junk
        if not junk:
            return self
        return replace(
            self,
            ids=np.where(np.isin(self.ids, junk), NONE, self.ids),
            second=np.where(np.isin(self.second, junk), NONE, self.second),
        )

    def labelled(self, ids: IntArray) -> Self:
        """The same with classes that a person gave; the likeliest other class is the second."""
        right = self.ids == ids
        return replace(
            self,
            ids=ids,
            confidence=np.ones(len(ids)),
            second=np.where(right, self.second, self.ids),
            second_confidence=np.where(right, self.second_confidence, self.confidence),
        )

    def part(self, start: int, end: int, names: list[str] | None = None) -> Self:
        """Some of the images, in order."""
        return replace(
            self,
            names=self.names[start:end] if names is None else names,
            **{
                name: getattr(self, name)[start:end]
                for name in ("ids", "confidence", "second", "second_confidence")
            },
        )

    @property
    def unknown(self) -> BoolArray:
        """Which images are of no class."""
        return np.asarray(self.ids == NONE)

    def columns(self) -> dict[str, list[str] | list[int] | list[float] | list[bool]]:
        """The table, by column."""
        listed = np.unique(np.concatenate([self.ids, self.second]))
        known = {id: self.roster.known(id) for id in listed[listed != NONE].tolist()}
        names = {NONE: UNKNOWN} | {id: one.name for id, one in known.items()}
        stages = {NONE: NONE} | {id: one.stage for id, one in known.items()}
        return {
            "file": self.names,
            "class": [names[id] for id in self.ids.tolist()],
            "class_id": self.ids.tolist(),
            "confidence": _rounded(self.confidence),
            "new": [stages[id] == self.latest > 0 for id in self.ids.tolist()],
            "stage": [stages[id] for id in self.ids.tolist()],
            "unknown": self.unknown.tolist(),
            "second": ["" if id == NONE else names[id] for id in self.second.tolist()],
            "second_confidence": _rounded(self.second_confidence),
            "margin": _rounded(self.confidence - self.second_confidence),
        }

    def csv(self) -> bytes:
        """The table as CSV; names that look like formulas get a quote in front."""
        columns = self.columns()
        safe = [
            [csv_cell(value) if isinstance(value, str) else value for value in column]
            for column in columns.values()
        ]
        return comma_separated(list(columns), zip(*safe, strict=True))

    def parquet(self) -> bytes:
        """The table as Parquet, names as they are."""
        import pyarrow
        import pyarrow.parquet

        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(self.columns()), buffer)
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write to a file, CSV or Parquet by its suffix."""
        writers = {".csv": self.csv, ".parquet": self.parquet}
        writer = writers.get(path.suffix.lower())
        if writer is None:
            raise GoalError(f"Cannot write {file_name(path)}: it must end in .csv or .parquet.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_bytes(path, writer())
        except OSError as error:
            raise GoalError(f"Cannot write {file_name(path)}: {error}") from error


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


def skipped_csv(skipped: Sequence[tuple[str, str]]) -> bytes:
    """Files that were skipped, and why."""
    rows = [(csv_cell(name), csv_cell(reason)) for name, reason in skipped]
    return comma_separated(["file", "reason"], rows)


def comma_separated(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """CSV in UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue().encode()
