"""Files that are either whole or absent: every write goes to a neighbour, then takes its place."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content takes the place of `path` in one step that cannot tear."""
    neighbour = path.with_name(f".{path.name}.tmp")
    try:
        with neighbour.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)
    _sync_folder(path.parent)


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


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object per line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def human_size(count: float) -> str:
    """Render a number of bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the platform lets a folder be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
