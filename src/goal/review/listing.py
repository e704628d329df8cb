"""All images that a model has learned, as the page lists them: by class, in some order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.models.piles import IMAGES
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.storage.tables import column_names, read_columns

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
        found: The class it came out as; -1 for none of them.
        ids: The class it counts as.
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
    found: IntArray
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
    count = len(rows["digest"])
    found = np.array(rows["class_id"], np.int64)
    confidence = np.array(rows["confidence"], np.float64)
    return Listing(
        names=rows["file"],
        places=rows["place"],
        digests=rows["digest"],
        stage=np.array(rows["stage"], np.int64),
        found=found,
        ids=_owned(found, owner),
        confidence=confidence,
        second=np.full(count, -1),
        margin=confidence,
        unknown=np.zeros(count, np.bool_),
        answered=np.zeros(count, np.bool_),
    )


def relisted(listing: Listing, owner: Sequence[int]) -> Listing:
    """The same images after classes were merged or parted."""
    again = replace(listing, ids=_owned(listing.found, owner))
    vars(again)["row_of"] = listing.row_of
    return again


def _owned(found: IntArray, owner: Sequence[int]) -> IntArray:
    return np.asarray([*owner, -1], np.int64)[found]


_STORED = ("file", "path", "digest", "class_id", "confidence")
_COLUMNS = ("file", "place", "digest", "stage", "class_id", "confidence")


def _part(store: Store, record: StageRecord) -> dict[str, list[Any]]:
    """The images of one stage; stages of older versions do not say which they were."""
    path = store.path(record.step) / IMAGES
    if not path.exists():
        return {key: [] for key in _COLUMNS}
    wanted = [name for name in column_names(path) if name in _STORED]
    rows = {name: column.to_pylist() for name, column in read_columns(path, wanted).items()}
    if missing := sorted({*_STORED} - {"path"} - rows.keys()):
        raise GoalError(f"{path} is damaged: no column {missing[0]}. `goal verify` says more.")
    places = rows.get("path", rows["file"])
    source, names = Path(record.source or ""), rows["file"]
    listed = [
        str(source / place) if place else name for place, name in zip(places, names, strict=True)
    ]
    return {**rows, "place": listed, "stage": [record.index] * len(listed)}
