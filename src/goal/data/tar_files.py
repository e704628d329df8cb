"""Tar files, gone through without believing what their headers say of themselves."""

import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from goal.common.errors import GoalError

MAX_HEADER_BYTES = 1 << 20


def members(stream: BinaryIO | Any) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Go through an uncompressed tar stream; the content of a member may be read when it comes.

    Raises:
        GoalError: A name or header is longer than any that is honest.
        Exception: Whatever `tarfile` raises on damaged bytes.
    """
    bounded = _Headers(stream)
    with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
        for member in archive:
            if member.size < 0:
                raise ValueError(f"{member.name!r} has a negative size")
            bounded.left = None
            yield archive, member
            bounded.left = MAX_HEADER_BYTES


class _Headers:
    """A tar stream whose headers are bounded: tarfile would read a name of any length at once.

    `left` is what may still be read up to the next member; None while its content is read.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.left: int | None = MAX_HEADER_BYTES
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        """Read, unless that is more than a header may have."""
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                limit = f"{MAX_HEADER_BYTES:,} bytes"
                raise GoalError(
                    f"The archive holds a name or header of more than {limit}: refused."
                )
        return bytes(self._stream.read(size))
