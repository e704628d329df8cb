"""Files that are either whole or absent: every write goes to a neighbour, then takes its place."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

from goal.common.errors import GoalError

if sys.platform != "win32":
    import fcntl


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content takes the place of `path` in one step that cannot tear.

    Processes that write the same file take turns. What a killed one leaves behind is taken over
    by the next.
    """
    neighbour = neighbour_of(path)
    try:
        with _sole_writer(neighbour) as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                if sys.platform == "win32":
                    stream.close()
                neighbour.replace(path)
            except BaseException:
                neighbour.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)
    except OSError as error:
        raise GoalError(
            f"Cannot write {path}: {error.strerror or error}. What was there before is unharmed. "
            f"Make room or allow writing there, then run the command again."
        ) from error


def neighbour_of(path: Path) -> Path:
    """Return where the content of `path` is gathered before it takes its place."""
    return path.with_name(f".{path.name}.tmp")


def _sole_writer(neighbour: Path) -> BinaryIO:
    """Open the file empty, once nobody else is writing to it."""
    while True:
        stream = os.fdopen(os.open(neighbour, os.O_WRONLY | os.O_CREAT, 0o666), "wb")
        try:
            if sys.platform != "win32":
                fcntl.flock(stream, fcntl.LOCK_EX)
            if _is_open(neighbour, stream):
                stream.truncate(0)
                return stream
        except BaseException:
            stream.close()
            raise
        stream.close()  # its last writer has put it in place: begin a new one


def _is_open(path: Path, stream: BinaryIO) -> bool:
    """Whether `stream` is the file that is called `path` now."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or raise an error that says what is wrong with it."""
    return _object(read_text(path), path, "")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object per line."""
    lines = read_text(path).splitlines()
    return [_object(line, path, f" in line {number}") for number, line in enumerate(lines, 1)]


def read_text(path: Path) -> str:
    """Read UTF-8 text, or raise an error that says what is wrong with it."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GoalError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise GoalError(f"{path} is damaged: it is not UTF-8 text ({error.reason}).") from error


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


def sync_folder(folder: Path) -> None:
    """Make a rename durable, where the platform lets a folder be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
