"""The feature store: one feature per image, in Parquet shards that anybody can read.

    features.json     which backbone made them and how; every shard with its rows and checksum
    shard-00000.parquet   name, digest, feature (fixed-size list of float16)
    shard-00001.parquet   ...

Shards are only ever added, each written whole before it is listed, so a killed writer loses the
shard in work and nothing else. Rows are found by digest: the hash of an image's content.

Shapes: N images, D features.
"""

import hashlib
import io
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.section import Section
from goal.data.images import DIGEST_BYTES
from goal.features.origin import Origin, require_origin
from goal.storage import files
from goal.storage.folders import walk
from goal.storage.manifest import Findings, facts
from goal.storage.seal import read_sealed, write_sealed
from goal.storage.tables import read_columns

FORMAT = 1
CONTENTS = "features.json"
_ADVICE = "Restore it from a copy, or delete the folder and run `goal embed` again."

HalfArray = npt.NDArray[np.float16]


class _Shard(Section):
    name: str = Field(pattern=r"^shard-\d{5,9}\.parquet$")
    rows: int = Field(gt=0)
    bytes: int = Field(gt=0)
    sha256: str


class _Contents(Section):
    format: int = FORMAT
    origin: Origin
    shards: list[_Shard] = Field(default_factory=list)


class FeatureStore:
    """A folder of features, all of one origin. Who adds to one holds the lock of its folder."""

    def __init__(self, folder: Path) -> None:
        """Open a store, or raise an error that says what is wrong with it."""
        self.folder = folder
        if not is_store(folder):
            raise GoalError(
                f"{file_name(folder)} is no feature store: it has no {CONTENTS}. Make one: "
                "`goal embed IMAGES --out FOLDER`."
            )
        content = read_sealed(folder / CONTENTS, FORMAT, _ADVICE)
        self._contents = _Contents.parse(content, f"content of {file_name(folder / CONTENTS)}")

    @classmethod
    def ready(cls, folder: Path, origin: Origin) -> "FeatureStore":
        """Open the store in `folder`, made if need be; an error if it is of another origin."""
        if not is_store(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _require_empty(folder)
            _write(folder, _Contents(origin=origin))
        store = cls(folder)
        require_origin(store.origin, origin, f"The features in {file_name(folder)}")
        return store

    @property
    def origin(self) -> Origin:
        """Where its features come from."""
        return self._contents.origin

    def __len__(self) -> int:
        return sum(shard.rows for shard in self._contents.shards)

    # -- reading ----------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> tuple[npt.NDArray[np.void], IntArray]:
        """Digests in ascending order, and the row of each."""
        digests = [self._column(shard, "digest") for shard in self._contents.shards]
        keys = np.concatenate([np.empty(0, f"V{DIGEST_BYTES}"), *digests])
        order = np.argsort(keys.view(f"S{DIGEST_BYTES}"), kind="stable")
        return keys[order], order

    def find(self, digests: Sequence[bytes]) -> IntArray:
        """Row of each digest, the first if there are several; -1 where there is none."""
        keys, order = self._index
        wanted = np.frombuffer(b"".join(digests), dtype=f"S{DIGEST_BYTES}")
        if not len(keys) or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        sortable = keys.view(f"S{DIGEST_BYTES}")
        places = np.searchsorted(sortable, wanted)
        safe = np.minimum(places, len(keys) - 1)
        return np.where(sortable[safe] == wanted, order[safe], -1)

    def names(self) -> list[str]:
        """Name of every row."""
        return [name for shard in self._contents.shards for name in self._column(shard, "name")]

    def digests(self) -> list[bytes]:
        """Digest of every row."""
        shards = self._contents.shards
        return [bytes(one) for shard in shards for one in self._column(shard, "digest")]

    def features(self, rows: IntArray | None = None) -> HalfArray:
        """Features of the given rows, or of all, (N, D)."""
        for shard in self._contents.shards:
            self._require_size(shard)  # before room is made for all of them
        wanted = np.arange(len(self)) if rows is None else np.asarray(rows)
        found = np.empty((len(wanted), self.origin.width), np.float16)
        start = 0
        for shard in self._contents.shards:
            here = np.flatnonzero((wanted >= start) & (wanted < start + shard.rows))
            if len(here):
                found[here] = self._column(shard, "feature")[wanted[here] - start]
            start += shard.rows
        return found

    def _column(self, shard: _Shard, name: str) -> Any:
        """One column of a shard, as numpy or, for names, as a list."""
        self._require_size(shard)
        path = self.folder / shard.name
        column = read_columns(path, [name])[name]
        if len(column) != shard.rows or column.null_count:
            raise _damaged(path, f"its column {name} does not have {shard.rows} values")
        if name == "name":
            return [visible(str(text)) for text in column.to_pylist()]
        if name == "digest":
            found = [bytes(one) for one in column.to_pylist()]
            if {len(one) for one in found} != {DIGEST_BYTES}:
                raise _damaged(path, f"not every digest has {DIGEST_BYTES} bytes")
            return np.frombuffer(b"".join(found), dtype=f"V{DIGEST_BYTES}")
        features = column.flatten().to_numpy(zero_copy_only=False)
        width = self.origin.width
        if features.dtype != np.float16 or len(features) != shard.rows * width:
            raise _damaged(path, f"its features are not {width} numbers of 16 bits each")
        if not np.isfinite(features).all():
            raise _damaged(path, "some of its features are not finite numbers")
        return features.reshape(shard.rows, width)

    def _require_size(self, shard: _Shard) -> None:
        """Raise an error unless a shard has the size it is listed with, and room for its rows."""
        path = self.folder / shard.name
        with files.opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
        if size != shard.bytes or shard.rows * self.origin.width * 2 > size:
            raise _damaged(path, f"{size:,} bytes are not those of {shard.rows:,} features")

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self, names: Sequence[str], digests: Sequence[bytes], features_ND: npt.NDArray[Any]
    ) -> None:
        """Add rows as one shard: written whole, then listed."""
        if not len(names):
            return
        shards = self._contents.shards
        name = f"shard-{len(shards):05d}.parquet"
        content = _parquet(names, digests, features_ND.astype(np.float16))
        files.write_bytes(self.folder / name, content)
        shard = _Shard(
            name=name,
            rows=len(names),
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        listed = self._contents.model_copy(update={"shards": [*shards, shard]})
        _write(self.folder, listed)
        self._contents = listed
        vars(self).pop("_index", None)

    def check(self, found: Findings) -> None:
        """Compare every shard with its checksum."""
        for shard in self._contents.shards:
            path = self.folder / shard.name
            found.checked.append(path)
            try:
                same = facts(path) == {"bytes": shard.bytes, "sha256": shard.sha256}
            except GoalError as error:
                found.problems.append(str(error))
                continue
            if not same:
                found.problems.append(f"{path} has changed since it was written.")


def _damaged(path: Path, why: str) -> GoalError:
    return GoalError(f"{file_name(path)} is damaged: {why}. {_ADVICE}")


def is_store(folder: Path) -> bool:
    """Whether a folder is a feature store."""
    return (folder / CONTENTS).is_file()


def verify_all(folder: Path, found: Findings) -> None:
    """Check every feature store in or below `folder`."""
    for path in walk(folder, found.problems):
        if path.name != CONTENTS:
            continue
        found.checked.append(path)
        try:
            FeatureStore(path.parent).check(found)
        except GoalError as error:
            found.problems.append(str(error))


def _require_empty(folder: Path) -> None:
    """Raise an error if a folder that is to become a store holds what is not a store's."""
    names = sorted(path.name for path in folder.iterdir())
    others = [name for name in names if name != ".lock" and not files.is_leftover(name)]
    if others:
        raise GoalError(
            f"{file_name(folder)} is not empty and no feature store (there is "
            f"{visible(others[0])}). Choose another folder."
        )


def _write(folder: Path, contents: _Contents) -> None:
    write_sealed(folder / CONTENTS, contents.model_dump(mode="json"))


def _parquet(names: Sequence[str], digests: Sequence[bytes], features: HalfArray) -> bytes:
    import pyarrow
    import pyarrow.parquet

    width = features.shape[1]
    values = pyarrow.array(features.reshape(-1), type=pyarrow.float16())
    table = pyarrow.table(
        {
            "name": pyarrow.array(names, pyarrow.string()),
            "digest": pyarrow.array(list(digests), pyarrow.binary(DIGEST_BYTES)),
            "feature": pyarrow.FixedSizeListArray.from_arrays(values, width),
        }
    )
    buffer = io.BytesIO()
    # Features are noise to a compressor: store them as they are.
    pyarrow.parquet.write_table(
        table,
        buffer,
        compression={"name": "zstd", "digest": "none", "feature.list.element": "none"},
        use_dictionary=False,
        write_statistics=False,
    )
    return buffer.getvalue()
