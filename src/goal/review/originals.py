"""Where the original of an image is now: found by name, known by its content.

Names come from the model folder, so none is believed: a file is used only if the digest of its
content is the one that the model learned. No link is followed out of its folder.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.images import DIGEST_BYTES
from goal.storage import files

MOST_BYTES = 256 << 20
_MOST_FILES = 2_000_000


class Originals:
    """Finds the files of images, below the folders that they were learned from or moved to."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """Look below these folders, besides where the names themselves lead."""
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._index: dict[str, list[Path]] | None = None

    def read(self, name: str, digest: bytes) -> bytes | None:
        """Content of the image with a name and a digest, None if it is nowhere."""
        for path in self._places(name):
            content = _content(path)
            if content is not None and _digest(content) == digest:
                return content
        return None

    def _places(self, name: str) -> Iterator[Path]:
        """Where the file may be, likeliest first; the folders are gone through only at last."""
        given = PurePath(name)
        yield Path(given)
        for folder in self._folders:
            parts = given.parts[1:] if given.is_absolute() else given.parts
            for skip in range(len(parts)):
                yield folder.joinpath(*parts[skip:])
        if self._index is None:
            self._index = _indexed(self._folders)
        yield from self._index.get(given.name, ())


def _indexed(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Files below some folders by their names as tables spell them; links are not followed."""
    found: dict[str, list[Path]] = {}
    count = 0
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                found.setdefault(file_name(name), []).append(Path(parent, name))
                count += 1
            if count > _MOST_FILES:
                return found
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]


def _content(path: Path) -> bytes | None:
    if ".." in path.parts:
        return None
    try:
        return files.read_bytes(path, MOST_BYTES)
    except (GoalError, OSError, ValueError):
        return None
