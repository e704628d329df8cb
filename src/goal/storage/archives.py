"""Zip and npz files of ours, whose sizes are looked at before anything is unpacked."""

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.errors import GoalError
from goal.storage.files import opened

MOST_BYTES = 512 << 20
_MOST_DIRECTORY = 32 << 20  # of the list of members, before any of it is read
_END, _END_BYTES, _COMMENT_BYTES = b"PK\5\6", 22, 1 << 16
_LOCATOR, _LOCATOR_BYTES = b"PK\6\7", 20  # of the long form, for more than goal writes


@contextmanager
def opened_zip(path: Path, most: int = MOST_BYTES) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members have at most `most` bytes together, as they say themselves.

    Reading a member never yields more than it says.

    Raises:
        GoalError: The file is damaged, or says that it holds more.
    """
    with opened(path) as stream:
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


def read_arrays(path: Path, most: int = MOST_BYTES) -> dict[str, npt.NDArray[Any]]:
    """Read an npz file without pickles; `most` bounds it as in `opened_zip`."""
    with opened_zip(path, most) as archive:
        return {
            name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()
        }


def _array(content: bytes) -> npt.NDArray[Any]:
    """An npy file's array, whose header must fit the bytes that are there."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of the unknown version {version}")
    first = version == (1, 0)
    read_header = (
        np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"an array of shape {shape} does not fit its {len(content)} bytes")
    stream.seek(0)
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _require_short_directory(stream: io.BufferedReader) -> None:
    """Refuse a list of members that alone would fill the memory."""
    size = os.fstat(stream.fileno()).st_size
    stream.seek(max(0, size - _END_BYTES - _COMMENT_BYTES - _LOCATOR_BYTES))
    tail = stream.read()
    plain = tail[-_END_BYTES:].startswith(_END) and tail.endswith(b"\0\0")
    at = len(tail) - _END_BYTES if plain else tail.rfind(_END)
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if at < 0 or len(tail) < at + _END_BYTES:
        raise zipfile.BadZipFile("it is no zip file")
    if length > _MOST_DIRECTORY or tail[max(0, at - _LOCATOR_BYTES) : at].startswith(_LOCATOR):
        raise zipfile.BadZipFile("it lists more members than any of its kind has")
    stream.seek(0)
