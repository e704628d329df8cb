"""Images of no class: they wait in their stage, and join the next one's.

A class of five images is too small to be found. Five more every week are not, if somebody keeps
the first ones: ``unsure.parquet`` of a stage holds the images that were far from all classes
when it ended, with their features, so that they come along wherever their files have gone.

Shapes: N images, D features.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet

from goal.backbone.tokens import TokenSource
from goal.common.arrays import BoolArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.own_images import ImageSet
from goal.features.source import FeatureSource
from goal.models.store import Store
from goal.storage.tables import read_columns

UNSURE = "unsure.parquet"
PATIENCE = 10  # stages after which an image that nothing came to join is given up


@dataclass(frozen=True)
class Waiting:
    """Images that wait.

    Attributes:
        names: What they are called.
        places: Their files, as in `ImageSet.places`; None where there is none.
        digests: Digest of each.
        since: Stage that each came in.
        features_ND: Their features.
    """

    names: list[str]
    places: list[str | None]
    digests: list[bytes]
    since: list[int]
    features_ND: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.names)

    def chosen(self, keep: BoolArray) -> "Waiting":
        """Some of them."""
        kept = np.flatnonzero(keep).tolist()
        lists = {
            name: [getattr(self, name)[at] for at in kept]
            for name in ("names", "places", "digests", "since")
        }
        return replace(self, features_ND=self.features_ND[kept], **lists)

    def without(self, digests: Sequence[bytes]) -> "Waiting":
        """Those that do not come again."""
        again = set(digests)
        return self.chosen(np.array([digest not in again for digest in self.digests], np.bool_))

    def since_stage(self, first: int) -> "Waiting":
        """Those that came in a stage or later."""
        return self.chosen(np.array([stage >= first for stage in self.since], np.bool_))

    def beside(self, other: "Waiting") -> "Waiting":
        """Together with others."""
        if not len(self) or not len(other):
            return self if len(self) else other
        return Waiting(
            self.names + other.names,
            self.places + other.places,
            self.digests + other.digests,
            self.since + other.since,
            np.concatenate([self.features_ND, other.features_ND]),
        )

    def content(self) -> bytes:
        """What ``unsure.parquet`` holds."""
        width = self.features_ND.shape[1]
        values = pyarrow.array(self.features_ND.reshape(-1), type=pyarrow.float32())
        columns = {
            "file": pyarrow.array(self.names, pyarrow.string()),
            "path": pyarrow.array(self.places, pyarrow.string()),
            "digest": pyarrow.array(self.digests, pyarrow.binary()),
            "since": pyarrow.array(self.since, pyarrow.int64()),
            "feature": pyarrow.FixedSizeListArray.from_arrays(values, width),
        }
        return parquet(pyarrow.table(columns))


NOTHING = Waiting([], [], [], [], np.empty((0, 1), np.float32))


def unsure_of(
    images: ImageSet, digests: Sequence[bytes], tokens: TokenSource, out: BoolArray, stage: int
) -> Waiting:
    """Those of a stage's own images that are of no class."""
    if not out.any():
        return NOTHING
    source = PurePath(images.source or "")
    places = [None if place is None else str(source / place) for place in images.places()]
    since = [stage] * len(images)
    features = features_of(tokens)[: len(images)]
    return Waiting(images.names, places, list(digests), since, features).chosen(out)


def waiting_in(store: Store) -> Waiting:
    """What waits in a model: what its last stage left."""
    stages = [record for record in store.records() if record.kind != "extend"]
    if not stages or not stages[-1].unsure:
        return NOTHING
    store.require_intact(stages[-1].step, UNSURE)
    return _read(store.path(stages[-1].step) / UNSURE)


def _read(path: Path) -> Waiting:
    found = read_columns(path, ["file", "path", "digest", "since", "feature"])
    names, places, digests, since = (
        found[name].to_pylist() for name in ("file", "path", "digest", "since")
    )
    flat = found["feature"].flatten().to_numpy(zero_copy_only=False)
    even = bool(names) and len(flat) and not len(flat) % len(names)
    if not even or flat.dtype != np.float32 or not np.isfinite(flat).all() or None in names:
        raise GoalError(f"{file_name(path)} is damaged. Restore it from a copy of the model.")
    return Waiting(names, places, digests, since, flat.reshape(len(names), -1))


def features_of(tokens: TokenSource) -> npt.NDArray[np.float32]:
    """Features that take the place of tokens."""
    assert isinstance(tokens, FeatureSource)
    return np.asarray(tokens.features, np.float32)


def parquet(table: Any) -> bytes:
    """A table as the content of a Parquet file."""
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()
