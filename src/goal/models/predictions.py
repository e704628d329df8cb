"""Predictions and skipped files as tables: CSV for spreadsheets, Parquet for programs."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import csv_cell, file_name
from goal.data.own_images import ImageSet
from goal.models.classes import Roster
from goal.storage import files

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Predictions:
    """What a model makes of images.

    Attributes:
        names: The images.
        ids: Class id of each, merged classes counted as one.
        confidence: Probability of that class.
        roster: The classes.
        latest: The model's latest stage, whose classes are the new ones.
        skipped: Images that could not be read, and why.
    """

    names: list[str]
    ids: IntArray
    confidence: npt.NDArray[np.float64]
    roster: Roster
    latest: int
    skipped: list[tuple[str, str]]

    @classmethod
    def join(
        cls,
        batches: Iterable["tuple[Tensor, Tensor]"],
        kept: ImageSet,
        roster: Roster,
        latest: int,
    ) -> Self:
        """Join batches of best classes (positions among those not merged) and probabilities."""
        ids = np.array(roster.ids(), dtype=np.int64)
        parts = list(batches)
        columns = [ids[best.numpy()] for best, _ in parts]
        confidence = [value.double().numpy() for _, value in parts]
        return cls(
            kept.names,
            np.concatenate([ids[:0], *columns]),
            np.concatenate([np.empty(0), *confidence]),
            roster,
            latest,
            kept.skipped,
        )

    def columns(self) -> dict[str, list[str] | list[int] | list[float] | list[bool]]:
        """The table, by column."""
        known = {id: self.roster.known(id) for id in np.unique(self.ids).tolist()}
        classes = [known[id] for id in self.ids.tolist()]
        return {
            "file": self.names,
            "class": [known.name for known in classes],
            "class_id": self.ids.tolist(),
            "confidence": [round(value, 6) for value in self.confidence.tolist()],
            "new": [known.stage == self.latest > 0 for known in classes],
            "stage": [known.stage for known in classes],
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
