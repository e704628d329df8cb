"""A shelf of the token bank: an append-only file of tokens, its index, and their checksums.

    <bank>/<trunk>/<shelf>/about.json   what the shelf holds, in words; its hash is its name
                           rows.bin     per row: image digest, CRC-32 of it and the row
                           tokens.bin   the rows: normalised tokens, then the raw CLS token
                                        (int8: a scale per token between them)

Rows are only ever appended: data first, then the records that make them count. A killed build
leaves at most unrecorded data, which the next build overwrites; a row whose checksum fails is
reported and computed again.
"""

import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from goal.backbone.tokens import Tokens
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.images import DIGEST_BYTES
from goal.distributed import collect, ranks
from goal.storage import files
from goal.storage.files import read_json, require_format, write_json
from goal.storage.locks import held

FORMAT = 1
RECORD = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("crc", "<u4")])
_BLOCK_BYTES = 8_000_000
_MOST_INDEX = 4 << 30  # 200 million images
_FILES = ("about.json", "rows.bin", "tokens.bin")
_KEY = re.compile("[0-9a-f]{16}")

Rows = npt.NDArray[Any]  # structured, one entry per image


def row_dtype(about: dict[str, Any]) -> np.dtype[Any]:
    """Layout of a row of the shelf that `about` describes."""
    tokens, width = about["tokens"], about["width"]
    scale = [("scale", "<f4", (tokens,))] if about["dtype"] == "int8" else []
    normalised = ("normalised", np.dtype(about["dtype"]).newbyteorder("<"), (tokens, width))
    return np.dtype([normalised, *scale, ("cls", "<f4", (width,))])


def checksums(row: Any, digest: Any) -> Iterator[int]:
    """Checksums that a good row may have: of image and row, and as once written, of the row."""
    yield zlib.crc32(row, zlib.crc32(digest))
    yield zlib.crc32(row)


def encode(tokens: Tokens, layout: np.dtype[Any]) -> Rows:
    """Round tokens to the shelf's precision: to nearest, in int8 to 127ths of each one's peak."""
    rows = np.empty(len(tokens), dtype=layout)
    rows["cls"] = tokens.cls.numpy()
    normalised = tokens.normalised
    if "scale" in (layout.names or ()):
        scale = normalised.abs().amax(dim=2) / 127
        rows["scale"] = scale.numpy()
        normalised = (normalised / scale.clamp_min(1e-30)[..., None]).round().to(torch.int8)
    elif layout["normalised"].base == np.float16:
        normalised = normalised.half()
    rows["normalised"] = normalised.numpy()
    return rows


def decode(rows: Rows) -> Tokens:
    """Turn rows back into tokens: float16 and float32 as they are, without a copy."""
    normalised = torch.from_numpy(rows["normalised"])
    if "scale" in (rows.dtype.names or ()):
        scale = torch.from_numpy(np.ascontiguousarray(rows["scale"]))
        normalised = normalised.float().mul_(scale[..., None])
    return Tokens(normalised, torch.from_numpy(np.ascontiguousarray(rows["cls"])))


class RowReader:
    """Reads rows from a file of tokens into memory of their own.

    Plain reads instead of a memory map: the pages stay the operating system's, so a bank larger
    than memory adds nothing to the process but the rows asked for.
    """

    def __init__(self, path: Path, layout: np.dtype[Any]) -> None:
        self.layout = layout
        self._path = path
        self._stream = files.opened(path).detach()  # unbuffered
        self._lock = threading.Lock()

    def __call__(self, rows: IntArray) -> Rows:
        """Return the rows, in the order given."""
        found = np.empty(len(rows), dtype=self.layout)
        self.into(found, np.arange(len(rows)), rows)
        return found

    def into(self, found: Rows, places: IntArray, rows: IntArray) -> None:
        """Put each row at its place in `found`; the file is read in its own order."""
        content = found.view(np.uint8).reshape(len(found), -1)
        size = self.layout.itemsize
        with self._lock:
            for which in np.argsort(rows, kind="stable"):
                self._stream.seek(int(rows[which]) * size)
                if self._stream.readinto(content[places[which]]) != size:
                    raise OSError(f"{self._path} was cut short while it was in use")


class Shelf:
    """The rows of one view: an append-only file of tokens and its index."""

    def __init__(self, parent: Path, about: dict[str, Any], reporter: Reporter) -> None:
        self.about = {"format": FORMAT, **about}
        key = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = parent / key
        self._row = row_dtype(about)
        self.row_bytes = self._row.itemsize
        self._checked: dict[int, bool] = {}
        self._open(reporter)

    def _open(self, reporter: Reporter) -> None:
        """Create the shelf, or discard one that is not what its name says."""
        require_no_link(self.folder)
        if self.folder.exists() and self._read_about() != self.about:
            reporter.warn(f"The shelf {self.folder} of the token bank is damaged; rebuilding it.")
            _discard(self.folder)
        if not (self.folder / "about.json").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "about.json", self.about)

    def _read_about(self) -> Any:
        try:
            return read_json(self.folder / "about.json")
        except GoalError:
            return None

    def find(self, digests: Sequence[bytes], reporter: Reporter) -> IntArray:
        """Row of each image, -1 where it has none or its row fails its checksum."""
        records = self._records()
        where = {bytes(digest): row for row, digest in enumerate(records["digest"])}
        rows = np.array([where.get(digest, -1) for digest in digests], dtype=np.int64)
        new = [row for row in np.unique(rows[rows >= 0]).tolist() if row not in self._checked]
        mine = np.array(new[ranks().rank :: ranks().count], dtype=np.int64)
        for found in collect(self._check(mine, records, reporter)):
            self._checked |= found
        damaged = [row for row in np.unique(rows[rows >= 0]).tolist() if not self._checked[row]]
        if damaged:
            reporter.warn(
                f"{len(damaged)} rows of {self.folder / 'tokens.bin'} fail their checksum "
                f"(first: row {damaged[0]}); computing them again."
            )
            rows[np.isin(rows, damaged)] = -1
        return rows

    def _check(
        self, rows: IntArray, records: npt.NDArray[Any], reporter: Reporter
    ) -> dict[int, bool]:
        """Say which rows agree with their checksums; in blocks, on several threads."""
        if not len(rows):
            return {}
        read = self.reader()
        size = max(1, _BLOCK_BYTES // self.row_bytes)
        blocks = [rows[start : start + size] for start in range(0, len(rows), size)]

        def intact(block: IntArray) -> list[bool]:
            content = read(block)
            known = zip(content, records[block], strict=True)
            return [int(one["crc"]) in checksums(row, one["digest"]) for row, one in known]

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            results = threads.map(intact, blocks)
            watched = reporter.track(results, len(blocks), "Checking the token bank")
            good = [answer for answers in watched for answer in answers]
        return dict(zip(rows.tolist(), good, strict=True))

    def append(self, tokens: Tokens, digests: Sequence[bytes]) -> None:
        """Add rows: data first, then the records that make them count."""
        rows = encode(tokens, self._row)
        with held(self.folder.parent / ".append"):  # the ranks of a run take turns
            self._append(rows, digests)

    def _append(self, rows: Rows, digests: Sequence[bytes]) -> None:
        count = len(self._records())
        _write_at(self.folder / "tokens.bin", count * self.row_bytes, rows.view(np.uint8).data)
        records = np.empty(len(digests), dtype=RECORD)
        records["digest"] = [np.void(digest) for digest in digests]
        pairs = zip(rows, digests, strict=True)
        records["crc"] = [next(checksums(row, digest)) for row, digest in pairs]
        _write_at(self.folder / "rows.bin", count * RECORD.itemsize, records.tobytes())

    def reader(self) -> RowReader:
        """Open the recorded rows for reading."""
        path = self.folder / "tokens.bin"
        files.open_own(path).close()
        return RowReader(path, self._row)

    def _records(self) -> npt.NDArray[Any]:
        """Read the index, less a torn last record and records whose data is gone."""
        path, data = self.folder / "rows.bin", self.folder / "tokens.bin"
        if not path.exists() or not data.exists():
            return np.empty(0, dtype=RECORD)
        content = files.read_bytes(path, _MOST_INDEX)
        whole = min(len(content) // RECORD.itemsize, data.stat().st_size // self.row_bytes)
        return np.frombuffer(content[: whole * RECORD.itemsize], dtype=RECORD)


def _write_at(path: Path, offset: int, content: bytes | memoryview) -> None:
    """Write durably at `offset`, dropping whatever an interrupted build left behind it."""
    with files.open_own(path) as stream:
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


def require_no_link(folder: Path) -> None:
    """Raise an error if a folder of the bank is a link: what it leads to is not the bank's."""
    if folder.is_symlink():
        raise GoalError(
            f"{folder} is a link, and the token bank follows none. Delete the link (what it leads "
            f"to stays), or choose another place for the whole bank by bank.folder or GOAL_CACHE."
        )


def inspect(root: Path) -> list[ShelfInfo]:
    """List the shelves under a bank's root; what lies behind links is none of it."""
    found = []
    for path in sorted(root.glob("*/*/about.json")):
        folder = path.parent
        ours = _KEY.fullmatch(folder.name) is not None
        if not ours or folder.is_symlink() or folder.parent.is_symlink():
            continue
        sizes = {file.name: file.lstat().st_size for file in folder.iterdir()}
        size = sum(sizes.values())
        count = sizes.get("rows.bin", 0) // RECORD.itemsize
        try:
            about = read_json(path)
        except GoalError:
            about = {}
        found.append(ShelfInfo(folder, about, count, size))
    return found


def clear(root: Path, trunk: str | None = None) -> int:
    """Delete all shelves, or those of the trunk whose name starts so; return the bytes freed."""
    for link in (path for path in root.glob("*") if path.is_symlink()):
        require_no_link(link)
    freed = 0
    for entry in inspect(root):
        if trunk is None or entry.folder.parent.name.startswith(trunk[:16]):
            with held(entry.folder.parent / ".lock"):
                _discard(entry.folder)
            freed += entry.size
    return freed


def _discard(folder: Path) -> None:
    """Delete the files of a shelf, and its folder unless somebody else's files are in it."""
    for path in [*folder.iterdir()]:
        if path.name in _FILES or files.is_leftover(path.name):
            path.unlink()
    with suppress(OSError):  # not empty
        folder.rmdir()


def damage(folder: Path) -> list[str]:
    """Compare a shelf of the token bank with its name and its rows with their checksums."""
    path = folder / "about.json"
    try:
        about = read_json(path)
        require_format(about.get("format"), FORMAT, path)
        layout = row_dtype(about)
    except (GoalError, KeyError, TypeError, ValueError) as error:
        return [f"{path} is damaged ({error}). The next run that needs it builds it anew."]
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    if name != folder.name or files.read_text(path) != json.dumps(about, indent=1) + "\n":
        return [f"{path} does not describe this shelf. The next run builds it anew."]
    index, tokens = folder / "rows.bin", folder / "tokens.bin"
    if not index.exists() and not tokens.exists():
        return []
    if not index.exists() or not tokens.exists():
        return [f"{folder} lacks rows.bin or tokens.bin. The next run computes the rows again."]
    try:
        content, stream = files.read_bytes(index, _MOST_INDEX), files.opened(tokens)
    except GoalError as error:
        return [str(error)]
    records = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
    rows = os.fstat(stream.fileno()).st_size // layout.itemsize
    if len(content) % RECORD.itemsize or rows < len(records):
        return [f"{index} and {tokens} do not fit: one has been cut short."]
    data = np.memmap(stream, dtype=layout, mode="r", shape=(rows,)) if rows else ()
    bad = [
        number
        for number, (record, row) in enumerate(zip(records, data, strict=False))
        if int(record["crc"]) not in checksums(row, record["digest"])
    ]
    why = "fails its checksum, or its entry in rows.bin does. The next run computes it again."
    return [f"{tokens}: row {number} {why}" for number in bad]
