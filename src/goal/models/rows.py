"""The images that a model has learned: what each stage noted of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
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

NONE = -1  # id of no class at all
_KEYS = ("file", "digest", "class_id", "confidence")
_LATER = ("path", "second", "second_confidence")  # not in stages of older versions


@dataclass(frozen=True)
class Rows:
    """One row per image, in the order in which they were learned.

    Attributes:
        files: What each was called.
        paths: Absolute path of its file then, None if it had none.
        digests: What it is recognised by.
        step: Position of its stage among the steps.
        ids: Its class then; -1 for none.
        confidence: How sure that was.
        second: The class it was next to; -1 for none, or where nobody noted it.
        second_confidence: How sure that was.
    """

    files: list[str]
    paths: list[str | None]
    digests: list[bytes]
    step: IntArray
    ids: IntArray
    confidence: npt.NDArray[np.float64]
    second: IntArray
    second_confidence: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.digests)

    @cached_property
    def position(self) -> dict[bytes, int]:
        """Row of each image, by digest."""
        return {digest: row for row, digest in enumerate(self.digests)}


def read_rows(store: Store, records: Sequence[StageRecord]) -> Rows:
    """The images of all stages; one that waited in several is listed in the last of them."""
    parts = [_part(store, record) for record in records if record.kind != "extend"]
    names = ("file", "path", "digest", "step", "class_id", "confidence", "second", "less")
    whole = {name: [value for part in parts for value in part[name]] for name in names}
    last = {digest: row for row, digest in enumerate(whole["digest"])}
    if len(last) < len(whole["digest"]):
        keep = sorted(last.values())
        whole = {name: [values[row] for row in keep] for name, values in whole.items()}
    return Rows(
        whole["file"],
        whole["path"],
        whole["digest"],
        np.array(whole["step"], np.int64),
        np.array(whole["class_id"], np.int64),
        np.array(whole["confidence"], np.float64),
        np.array(whole["second"], np.int64),
        np.array(whole["less"], np.float64),
    )


def _part(store: Store, record: StageRecord) -> dict[str, list[Any]]:
    """The images of one stage; stages of older versions do not say which they were."""
    path = store.path(record.step) / IMAGES
    if not path.exists():
        return {name: [] for name in (*_KEYS, "path", "step", "second", "less")}
    store.require_intact(record.step, IMAGES)
    wanted = [name for name in column_names(path) if name in (*_KEYS, *_LATER)]
    found = {name: column.to_pylist() for name, column in read_columns(path, wanted).items()}
    if missing := [key for key in _KEYS if key not in found]:
        raise GoalError(f"{path} is damaged: no column {missing[0]}. `goal verify` says more.")
    part = {key: found[key] for key in _KEYS}
    count, source = len(part["digest"]), Path(record.source or "")
    places = found.get("path", [None] * count)
    return {
        **part,
        "path": [None if place is None else str(source / place) for place in places],
        "step": [record.step] * count,
        "second": found.get("second", [NONE] * count),
        "less": found.get("second_confidence", [0.0] * count),
    }
