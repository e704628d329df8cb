"""A shelf of the token bank: an append-only file of tokens, its index, and their checksums.

    <bank>/<trunk>/<shelf>/about.json   what the shelf holds, in words; its hash is its name
                           rows.bin     per row: image digest, CRC-32 of the row
                           tokens.bin   the rows: normalised tokens, then the raw CLS token

Rows are only ever appended: data first, then the records that make them count. A killed build
leaves at most unrecorded data, which the next build overwrites; a row whose checksum fails is
reported and computed again.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from goal.data.base import DIGEST_BYTES, IntArray
from goal.files import write_json
from goal.progress import Reporter
from goal.tokens import Tokens

FORMAT = 1
_RECORD = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("crc", "<u4")])


class Shelf:
    """The rows of one view: an append-only file of tokens and its index."""

    def __init__(self, parent: Path, about: dict[str, Any], reporter: Reporter) -> None:
        self.about = {"format": FORMAT, **about}
        key = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = parent / key
        self._row = np.dtype(
            [
                ("normalised", np.dtype(about["dtype"]), (about["tokens"], about["width"])),
                ("cls", "<f4", (about["width"],)),
            ]
        )
        self.row_bytes = self._row.itemsize
        self._checked: dict[int, bool] = {}
        self._open(reporter)

    def _open(self, reporter: Reporter) -> None:
        """Create the shelf, or discard one that is not what its name says."""
        if self.folder.exists() and self._read_about() != self.about:
            reporter.warn(f"The shelf {self.folder} of the token bank is damaged; rebuilding it.")
            shutil.rmtree(self.folder)
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            write_json(self.folder / "about.json", self.about)

    def _read_about(self) -> Any:
        try:
            return json.loads((self.folder / "about.json").read_bytes())
        except (OSError, ValueError):
            return None

    def find(self, digests: Sequence[bytes], reporter: Reporter) -> IntArray:
        """Row of each image, -1 where it has none or its row fails its checksum."""
        records = self._records()
        where = {bytes(digest): row for row, digest in enumerate(records["digest"])}
        rows = np.array([where.get(digest, -1) for digest in digests], dtype=np.int64)
        data = self.data() if len(records) else None
        damaged = []
        for row in np.unique(rows[rows >= 0]).tolist():
            if row not in self._checked and data is not None:
                self._checked[row] = zlib.crc32(data[row]) == records["crc"][row]
            if not self._checked[row]:
                damaged.append(row)
        if damaged:
            reporter.warn(
                f"{len(damaged)} rows of {self.folder / 'tokens.bin'} fail their checksum "
                f"(first: row {damaged[0]}); computing them again."
            )
            rows[np.isin(rows, damaged)] = -1
        return rows

    def append(self, tokens: Tokens, digests: Sequence[bytes]) -> None:
        """Add rows: data first, then the records that make them count."""
        rows = np.empty(len(digests), dtype=self._row)
        rows["normalised"] = tokens.normalised.numpy()
        rows["cls"] = tokens.cls.numpy()
        count = len(self._records())
        _write_at(self.folder / "tokens.bin", count * self.row_bytes, rows.tobytes())
        records = np.empty(len(digests), dtype=_RECORD)
        records["digest"] = [np.void(digest) for digest in digests]
        records["crc"] = [zlib.crc32(row.tobytes()) for row in rows]
        _write_at(self.folder / "rows.bin", count * _RECORD.itemsize, records.tobytes())

    def data(self) -> npt.NDArray[Any]:
        """Memory-map the recorded rows."""
        count = len(self._records())
        if count == 0:
            return np.empty(0, dtype=self._row)
        return np.memmap(self.folder / "tokens.bin", dtype=self._row, mode="r", shape=(count,))

    def _records(self) -> npt.NDArray[Any]:
        """Read the index, less a torn last record and records whose data is gone."""
        path, data = self.folder / "rows.bin", self.folder / "tokens.bin"
        if not path.exists() or not data.exists():
            return np.empty(0, dtype=_RECORD)
        content = path.read_bytes()
        whole = min(len(content) // _RECORD.itemsize, data.stat().st_size // self.row_bytes)
        return np.frombuffer(content[: whole * _RECORD.itemsize], dtype=_RECORD)


def _write_at(path: Path, offset: int, content: bytes) -> None:
    """Write durably at `offset`, dropping whatever an interrupted build left behind it."""
    with path.open("r+b" if path.exists() else "w+b") as stream:
        stream.truncate(offset)
        stream.seek(offset)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@dataclass(frozen=True)
class ShelfInfo:
    """A shelf as found on disk."""

    folder: Path
    about: dict[str, Any]
    rows: int
    size: int


def inspect(root: Path) -> list[ShelfInfo]:
    """List the shelves under a bank's root."""
    found = []
    for path in sorted(root.glob("*/*/about.json")):
        folder = path.parent
        size = sum(file.stat().st_size for file in folder.iterdir())
        rows = folder / "rows.bin"
        count = rows.stat().st_size // _RECORD.itemsize if rows.exists() else 0
        try:
            about = json.loads(path.read_bytes())
        except ValueError:
            about = {}
        found.append(ShelfInfo(folder, about, count, size))
    return found


def clear(root: Path, trunk: str | None = None) -> int:
    """Delete all shelves, or those of the trunk whose name starts so; return the bytes freed."""
    freed = 0
    for entry in inspect(root):
        if trunk is None or entry.folder.parent.name.startswith(trunk[:16]):
            with FileLock(entry.folder.parent / ".lock"):
                shutil.rmtree(entry.folder)
            freed += entry.size
    return freed
