"""Labels as scikit-learn knows them: whole numbers where labels were whole numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.arrays import BoolArray
from goal.models.classes import Roster
from goal.models.predictions import NONE, UNKNOWN
from goal.models.store import StageRecord, Store
from goal.storage.tables import read_columns


def whole_numbers(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels as int64 where they are whole numbers (or truth values), as texts otherwise."""
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    if labels.dtype.kind == "f" and bool((np.isfinite(labels) & (labels % 1 == 0)).all()):
        return labels.astype(np.int64)
    return np.array([str(label) for label in labels.tolist()], dtype=np.str_)


def class_labels(roster: Roster, first: StageRecord) -> npt.NDArray[Any]:
    """The classes that are not merged, in order: numbers where the labels were, or names.

    A discovered class whose name is no number gets one above all labels: the next after the
    largest label for the first one, and so on by id, past numbers that are taken.
    """
    ids = roster.ids()
    renamed = roster.judgement.names
    given = {id: _number(roster.names[id]) for id in ids}
    corrected = any(given[id] is None and str(id) in renamed for id in ids)
    if not first.numbers or corrected:
        return np.array([roster.names[id] for id in ids], dtype=np.str_)
    taken = {number for number in given.values() if number is not None}
    next_one = max(int(name) for name in first.names) + 1
    found = []
    for id in ids:
        number = given[id]
        if number is None:
            number = next_one + id - first.num_seen
            while number in taken:
                number += 1
            taken.add(number)
        found.append(number)
    return np.array(found, dtype=np.int64)


def name_of(roster: Roster, records: Sequence[StageRecord], given: str | int) -> str:
    """The name of a class that is given by name, or by its number, also if it is merged."""
    apart = Roster(records, roster.judgement.model_copy(update={"merged": {}}))
    for known in (roster, apart):
        listed = class_labels(known, records[0]).tolist()
        if given in listed:
            return str(known.names[known.ids()[listed.index(given)]])
    return str(given)


def with_unknown(labels: npt.NDArray[Any], out: BoolArray) -> npt.NDArray[Any]:
    """The same labels where `out` does not say that an image is of no class."""
    if not out.any():
        return labels
    if labels.dtype.kind in "iu":
        return np.where(out, NONE, labels)
    found = np.where(out, np.asarray(UNKNOWN, dtype=object), labels)
    return found if labels.dtype.kind == "O" else found.astype(np.str_)


def stage_classes(store: Store, records: Sequence[StageRecord]) -> list[int]:
    """Class id of each image of the last stage, as the stage's own table has it."""
    step = next(record.step for record in reversed(records) if record.kind != "extend")
    store.require_intact(step, "predictions.parquet")
    found = read_columns(store.path(step) / "predictions.parquet", ["class_id"])
    return [int(id) for id in found["class_id"].to_pylist()]


def _number(name: str) -> int | None:
    """The whole number that a name spells, None for other names."""
    plain = name.removeprefix("-")
    return int(name) if plain.isascii() and plain.isdigit() and str(int(name)) == name else None
