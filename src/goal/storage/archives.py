"""Zip and npz files of ours, whose sizes are looked at before anything is unpacked."""

import math
import os
import zipfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.storage.files import opened
from goal.storage.tables import allowance

MOST_BYTES = 512 << 20
_MOST_DIRECTORY = 32 << 20  # of the list of members, before any of it is read
_END, _END_BYTES, _COMMENT_BYTES = b"PK\5\6", 22, 1 << 16
_LOCATOR, _LOCATOR_BYTES = b"PK\6\7", 20  # of the long form, for more than goal writes
_LONG_END, _LONG_END_BYTES = b"PK\6\6", 56


@contextmanager
def opened_zip(
    path: Path, most: int = MOST_BYTES, *, given: bool = False
) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members have at most `most` bytes together, as they say themselves.

    Reading a member never yields more than it says. `given` as in `goal.storage.files.opened`.

    Raises:
        GoalError: The file is damaged, or says that it holds more.
    """
    with opened(path, given=given) as stream:
        try:
            _require_short_directory(stream)
            with zipfile.ZipFile(stream) as archive:
                size = sum(member.file_size for member in archive.infolist())
                if size > most:
                    why = (
                        f"it unpacks to {size:,} bytes, and none of its kind has more than {most:,}"
                    )
                    raise GoalError(f"Refused to read {path}: {why}.")
                yield archive
        except (
            *(zipfile.BadZipFile, OSError, ValueError, KeyError, EOFError),
            *(NotImplementedError, RuntimeError, zipfile.LargeZipFile),
        ) as error:
            raise GoalError(f"{path} is damaged: {error}") from None


def read_arrays(
    path: Path,
    most: int = MOST_BYTES,
    *,
    given: bool = False,
    wanted: Container[str] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Read an npz file without pickles: all of its arrays, or those that are `wanted`.

    `most` bounds it as in `opened_zip`.
    """
    with opened_zip(path, most, given=given) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        return {
            name: _member(archive, member)
            for name, member in members.items()
            if wanted is None or name in wanted
        }


def array_names(path: Path, *, given: bool = False) -> list[str]:
    """Names of the arrays in an npz file."""
    size = path.stat().st_size
    with opened_zip(path, allowance(size), given=given) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def mapped_array(path: Path, *, given: bool = False) -> npt.NDArray[Any]:
    """An npy file's array without pickles, read from disk as it is used."""
    with opened(path, given=given) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            shape, order, dtype = _header(stream, size)
            if size == stream.tell():
                return np.empty(shape, dtype)
            return np.memmap(stream, dtype, "r", stream.tell(), shape, order)
        except (OSError, ValueError) as error:
            raise GoalError(f"Cannot read {file_name(path)} as an array: {error}.") from error


def _member(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """A zipped npy file's array."""
    with archive.open(name) as stream:
        size = archive.getinfo(name).file_size
        shape, order, dtype = _header(stream, size)
        found = np.empty(math.prod(shape), dtype)
        content, done = found.view(np.uint8) if found.nbytes else np.empty(0, np.uint8), 0
        while done < len(content):
            if not (count := stream.readinto(content[done:])):  # type: ignore[attr-defined]
                raise EOFError("an array ends too early")
            done += count
        stream.read(1)  # its checksum is compared at the end
        return found.reshape(shape, order=order)


def _header(
    stream: IO[bytes], size: int
) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Shape, order and type of an npy file's array, which must fit the bytes that follow."""
    try:
        version = np.lib.format.read_magic(stream)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, fortran, dtype = readers[version](stream)
    except Exception as error:  # numpy goes through the text of the header by Python's tokenizer
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    left = size - stream.tell()
    fits = all(side >= 0 for side in shape) and math.prod(shape) * dtype.itemsize == left
    if dtype.hasobject or not fits:
        raise ValueError(f"an array of shape {shape} does not fit its {left} bytes")
    return shape, "F" if fortran else "C", dtype


def _require_short_directory(stream: BufferedReader) -> None:
    """Refuse a list of members that alone would fill the memory."""
    size = os.fstat(stream.fileno()).st_size
    longest = _END_BYTES + _COMMENT_BYTES + _LOCATOR_BYTES + _LONG_END_BYTES
    stream.seek(max(0, size - longest))
    tail = stream.read()
    plain = tail[-_END_BYTES:].startswith(_END) and tail.endswith(b"\0\0")
    at = len(tail) - _END_BYTES if plain else tail.rfind(_END)
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if at < 0 or len(tail) < at + _END_BYTES:
        raise zipfile.BadZipFile("it is no zip file")
    before = tail[max(0, at - _LOCATOR_BYTES - _LONG_END_BYTES) : at]
    if before[-_LOCATOR_BYTES:].startswith(_LOCATOR):
        if not before.startswith(_LONG_END):
            raise zipfile.BadZipFile("its list of members is not where it should be")
        length = int.from_bytes(before[40:48], "little")
    if length > _MOST_DIRECTORY:
        raise zipfile.BadZipFile("it lists more members than any of its kind has")
    stream.seek(0)
