"""All images that a model has learned, as the page lists them: by class, in some order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.models.piles import IMAGES
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.storage import files

FloatColumn = npt.NDArray[np.float64]
BoolColumn = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Listing:
    """One row per image.

    Attributes:
        names: Name of each, as it was given.
        places: Where its file was, as far as anybody knows.
        digests: What each is known by.
        stage: The stage that learned it.
        ids: Its class; -1 for none of them.
        confidence: How sure that is.
        second: The class it is next to; -1 where nobody knows.
        margin: How far apart these two are.
        unknown: Whether it is like no class.
        answered: Whether a person said what it is.
    """

    names: list[str]
    places: list[str]
    digests: list[bytes]
    stage: IntArray
    ids: IntArray
    confidence: FloatColumn
    second: IntArray
    margin: FloatColumn
    unknown: BoolColumn
    answered: BoolColumn

    def __len__(self) -> int:
        return len(self.digests)

    @cached_property
    def row_of(self) -> dict[bytes, int]:
        """Row of each image, by its digest."""
        return {digest: row for row, digest in enumerate(self.digests)}

    @cached_property
    def _by_class(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.ids, kind="stable")
        return order, self.ids[order]

    def members(self, id: int) -> IntArray:
        """Rows of a class, or of the images that are in none (-1)."""
        order, sorted_ids = self._by_class
        low, high = np.searchsorted(sorted_ids, [id, id + 1])
        return order[low:high]

    def counts(self) -> dict[int, int]:
        """Images of each class."""
        ids, sizes = np.unique(self.ids, return_counts=True)
        return dict(zip(ids.tolist(), sizes.tolist(), strict=True))


def read_listing(store: Store, records: Sequence[StageRecord], owner: Sequence[int]) -> Listing:
    """The images of all stages under the classes that they count as."""
    parts = [_part(store, record) for record in records if record.kind != "extend"]
    rows = {key: [value for part in parts for value in part[key]] for key in _COLUMNS}
    ids = np.array([owner[id] for id in rows["class_id"]], np.int64)
    confidence = np.array(rows["confidence"], np.float64)
    return Listing(
        rows["file"],
        rows["place"],
        rows["digest"],
        np.array(rows["stage"], np.int64),
        ids,
        confidence,
        np.full(len(ids), -1),
        confidence,
        np.zeros(len(ids), np.bool_),
        np.zeros(len(ids), np.bool_),
    )


_COLUMNS = ("file", "place", "digest", "stage", "class_id", "confidence")


def _part(store: Store, record: StageRecord) -> dict[str, list[Any]]:
    """The images of one stage; stages of older versions do not say which they were."""
    path = store.path(record.step) / IMAGES
    if not path.exists():
        return {key: [] for key in _COLUMNS}
    try:
        with files.opened(path) as stream:
            rows = pyarrow.parquet.read_table(stream).to_pydict()
        places = rows.get("path", rows["file"])
    except (KeyError, pyarrow.ArrowException) as error:
        raise GoalError(f"{path} is damaged: {error}. `goal verify` says more.") from error
    source, names = Path(record.source or ""), rows["file"]
    listed = [
        str(source / place) if place else name for place, name in zip(places, names, strict=True)
    ]
    return {**rows, "place": listed, "stage": [record.index] * len(listed)}
