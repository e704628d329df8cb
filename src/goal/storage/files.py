"""Files that are whole or absent, and read with care.

Every write goes to a new neighbour that nobody can have prepared, then takes its place in one
rename. What is read must be a regular file of bounded size, not reached by a link that leads away.
"""

import errno
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from math import isfinite
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from goal.common.errors import GoalError

if sys.platform != "win32":
    import fcntl

MOST_TEXT = 64 << 20
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
NO_LOCKS = UNSUPPORTED | {errno.ENOLCK}
_LEFTOVER = re.compile(r"\..+\.goal-[0-9a-f]{16}\.tmp", re.DOTALL)
_LEFT_ALONE_SECONDS = 86_400.0  # where the file system cannot tell whether its writer lives
# Names that not every platform has; without them, the plain way.
_BINARY, _NOFOLLOW = getattr(os, "O_BINARY", 0), getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK, _FOLDER = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_DIRECTORY", 0)


# -- writing ----------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content takes the place of `path` in one step that cannot tear.

    Of several processes that write the same file, the last one wins. What killed ones left behind
    in the folder is swept away.
    """
    try:
        with _Place(path.parent) as place:
            place.sweep()
            name, stream = place.create(path.name)
            with stream:
                try:
                    yield stream
                    stream.flush()
                    _sync(stream.fileno())
                    if sys.platform == "win32":
                        stream.close()
                    place.rename(name, path.name)
                except BaseException:
                    place.unlink(name)
                    raise
    except OSError as error:
        raise GoalError(
            f"Cannot write {path}: {error.strerror or error}. What was there before is unharmed. "
            f"Make room or allow writing there, then run the command again."
        ) from error
    sync_folder(path.parent)


def is_leftover(name: str) -> bool:
    """Whether a file of this name is one that `replacing` gathers content in."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep(folder: Path) -> None:
    """Delete what killed writers left in a folder: only files that `replacing` made."""
    with _Place(folder) as place:
        place.sweep()


class _Place:
    """A folder held open: what is done in it is done there, whatever happens to its name.

    Windows cannot open folders; there its name is used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> "_Place":
        posix = os.name == "posix"
        self._handle = os.open(self._folder, os.O_RDONLY | _FOLDER) if posix else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def _named(self, name: str) -> str:
        return name if self._handle is not None else str(self._folder / name)

    def create(self, target: str) -> tuple[str, BinaryIO]:
        """Make an empty file with a name that cannot be foreseen, and hold its lock."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
        while True:
            name = f".{target[:50]}.goal-{secrets.token_hex(8)}.tmp"
            handle = os.open(self._named(name), flags, 0o666, dir_fd=self._handle)
            try:
                _flock(handle, wait=True)
                if os.fstat(handle).st_nlink != 0:
                    return name, os.fdopen(handle, "wb")
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # swept away before its lock was held

    def rename(self, name: str, target: str) -> None:
        """Let a file take the place of another; a link there is replaced, not followed."""
        names = self._named(name), self._named(target)
        os.replace(*names, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def unlink(self, name: str) -> None:
        """Delete a file, if it is still there."""
        with suppress(FileNotFoundError):
            os.unlink(self._named(name), dir_fd=self._handle)

    def sync(self) -> None:
        """Make what happened to names in the folder durable."""
        if self._handle is not None:
            _sync(self._handle)

    def sweep(self) -> None:
        """Delete the files of writers that were killed."""
        for name in os.listdir(self._handle or self._folder):  # noqa: PTH208 an open folder
            if is_leftover(name):
                with suppress(OSError):  # another sweeper was faster, or it is somebody else's
                    self._sweep(name)

    def _sweep(self, name: str) -> None:
        if self._handle is None:  # Windows keeps a file that somebody has open
            self.unlink(name)
            return
        handle = os.open(name, os.O_RDONLY | _NOFOLLOW | _NONBLOCK, dir_fd=self._handle)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and _abandoned(handle):
                self.unlink(name)
        finally:
            os.close(handle)


def _abandoned(handle: int) -> bool:
    """Whether no writer holds the lock; where there are no locks, whether the file is old."""
    try:
        if _flock(handle, wait=False):
            return True
    except BlockingIOError:
        return False
    return time.time() - os.fstat(handle).st_mtime > _LEFT_ALONE_SECONDS


def _flock(handle: int, *, wait: bool) -> bool:
    """Take the lock of a file that is open here; return False if the file system has none."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return True


def _sync(handle: int) -> None:
    """Make content durable, as far as the file system knows how to."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def sync_folder(folder: Path) -> None:
    """Make a rename durable, where the platform lets a folder be synced."""
    try:
        with _Place(folder) as place:
            place.sync()
    except OSError as error:
        raise GoalError(
            f"What was written to {folder} is in place, but the disk does not confirm it "
            f"({error.strerror or error}): it may be lost when the power fails. "
            f"Check the disk, then run the command again."
        ) from error


def open_own(path: Path) -> BinaryIO:
    """Open a file of ours for reading and writing in place, making it if there is none.

    Raises:
        GoalError: It is a link, a device, or has a second name, so that writing would change what
            lies elsewhere.
    """
    flags = os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK | _BINARY
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise GoalError(
            f"{path} is a link or no file: refused to write there. Delete it, or put a copy of "
            f"what it leads to in its place."
        ) from error
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return os.fdopen(handle, "r+b")
    os.close(handle)
    raise GoalError(
        f"{path} is no file of its own (a device, or a second name of another file): refused to "
        f"write there. Put a copy in its place, or delete it."
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`."""
    with replacing(path) as stream:
        stream.write(content)


def write_text(path: Path, content: str) -> None:
    """Replace `path` by UTF-8 text."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace `path` by indented JSON."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace `path` by one JSON object per line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


# -- reading ----------------------------------------------------------------------------------


def inside(root: Path, name: str | PurePath) -> Path:
    """Return ``root/name``, or raise an error if the name or a link in it leads out of `root`."""
    path = root / name
    try:
        if path.resolve().is_relative_to(root.resolve()):
            return path
        why = "leads out of its folder"
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a name with NUL
        why = f"leads nowhere ({error})"
    raise GoalError(
        f"Refused to use {path}: by its name or by a link, it {why}. What belongs to {root} must "
        f"lie in it: put a copy in the place of the link."
    )


def opened(path: Path, *, given: bool = False) -> BufferedReader:
    """Open a regular file for reading; never waits for a pipe, never reads a device.

    Args:
        path: The file.
        given: The person named this very file, so it may be a link to anywhere. Otherwise it
            must not be one that leads out of its folder.
    """
    if not given and path.is_symlink():
        inside(path.parent, path.name)
    try:
        handle = os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY)
    except (OSError, ValueError) as error:
        raise GoalError(f"Cannot read {path}: {_reason(error)}.") from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    what = "Is a directory" if stat.S_ISDIR(mode) else "it is a pipe or device, not a regular file"
    raise GoalError(f"Cannot read {path}: {what}.")


def read_bytes(path: Path, most: int = MOST_TEXT, *, given: bool = False) -> bytes:
    """Read a regular file of at most `most` bytes; `given` as in `opened`."""
    with opened(path, given=given) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(size + 1) if size <= most else b""  # reserves what it is asked
        except OSError as error:
            raise GoalError(f"Cannot read {path}: {_reason(error)}.") from error
    if max(size, len(content)) > most:
        raise GoalError(
            f"Refused to read {path}: it is larger than {most:,} bytes, which no file of its "
            f"kind is."
        )
    return content


def read_text(path: Path, most: int = MOST_TEXT, *, given: bool = False) -> str:
    """Read UTF-8 text, or raise an error that says what is wrong with it."""
    try:
        return read_bytes(path, most, given=given).decode()
    except UnicodeDecodeError as error:
        raise GoalError(f"{path} is damaged: it is not UTF-8 text ({error.reason}).") from error


def read_json(path: Path, most: int = MOST_TEXT) -> dict[str, Any]:
    """Read a JSON object, or raise an error that says what is wrong with it."""
    return _object(read_text(path, most), path, "")


def read_jsonl(path: Path, most: int = MOST_TEXT) -> list[dict[str, Any]]:
    """Read one JSON object per line."""
    return json_lines(read_text(path, most), path)


def json_lines(text: str, path: Path) -> list[dict[str, Any]]:
    """Take the text of a file for one JSON object per line."""
    lines = text.splitlines()
    return [_object(line, path, f" in line {number}") for number, line in enumerate(lines, 1)]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _object(text: str, path: Path, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise GoalError(f"{path} is damaged{where}: {error}.") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise GoalError(f"{path} should hold an object{where}, but holds a {kind}.")
    return content


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number that can be shown or compared")


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refuse(text)


def require_format(found: Any, known: int, path: Path) -> None:
    """Raise an error unless a file's format is the one that this version knows."""
    if found == known and type(found) is int:
        return
    newer = type(found) is int and found > known
    advice = (
        "A newer goal wrote it. Update: pip install --upgrade goal-cgcd."
        if newer
        else "It is damaged, or of a version of goal-cgcd that only that version reads."
    )
    raise GoalError(f"{path} has format {found!r}; this version reads format {known}. {advice}")
