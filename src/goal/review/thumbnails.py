"""Thumbnails of the images that a model has learned: each made once, when it is first looked at.

They are kept in the model folder as ``thumbnails/<first two letters>/<digest>.webp``; with
``--read-only`` in memory alone. What cannot be made is drawn as an empty frame by the page.
"""

import binascii
import io
import os
import threading
from collections import OrderedDict
from pathlib import Path

from goal.common.errors import GoalError
from goal.data.decoding import UnreadableImage, decode
from goal.models.piles import IMAGES
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.pages.galleries import thumbnail
from goal.review.originals import Originals
from goal.storage import files
from goal.storage.tables import read_columns

SIDE = 192
LARGE_SIDE = 1280
FOLDER = "thumbnails"
_MOST_BYTES = 256 << 10  # of one thumbnail
_MEMORY = 96 << 20
_AT_ONCE = min(4, os.cpu_count() or 1)


class Thumbnails:
    """Small and large pictures by digest."""

    def __init__(self, store: Store, originals: Originals, keep: bool) -> None:
        """Prepare to draw.

        Args:
            store: The model folder.
            originals: Finds the files.
            keep: Whether thumbnails are kept in the model folder.
        """
        self._store = store
        self._originals = originals
        self._keep = keep
        self._recent = _Recent(_MEMORY)
        self._turns = threading.Semaphore(_AT_ONCE)
        self._gallery: dict[str, bytes] | None = None
        self._gallery_lock = threading.Lock()

    def small(
        self, name: str, place: str, digest: bytes, records: list[StageRecord]
    ) -> bytes | None:
        """The thumbnail of an image, or None if its file is nowhere to be found."""
        key = digest.hex()
        if (found := self._recent.get(key)) is not None:
            return found
        if (found := self._kept(key)) is None:
            with self._turns:
                found = self._drawn(place, digest, SIDE)
            if found is None:
                return self._from_gallery(name, records)
            if self._keep:
                self._store_away(key, found)
        self._recent.put(key, found)
        return found

    def large(self, place: str, digest: bytes) -> bytes | None:
        """The image itself, no larger than a screen, or None if its file is nowhere."""
        with self._turns:
            return self._drawn(place, digest, LARGE_SIDE)

    def _drawn(self, place: str, digest: bytes, side: int) -> bytes | None:
        content = self._originals.read(place, digest)
        if content is None:
            return None
        try:
            return thumbnail(decode(io.BytesIO(content), near=side), side)
        except UnreadableImage:
            return None

    def _place(self, key: str) -> Path:
        return Path(FOLDER) / key[:2] / f"{key}.webp"

    def _kept(self, key: str) -> bytes | None:
        """A thumbnail of before; not one that lies elsewhere, is too large or is no WebP."""
        try:
            path = files.inside(self._store.folder, self._place(key))
            content = files.read_bytes(path, _MOST_BYTES)
        except (GoalError, OSError):
            return None
        return content if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None

    def _store_away(self, key: str, content: bytes) -> None:
        try:
            path = files.inside(self._store.folder, self._place(key))
            if self._store.folder.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write_bytes(path, content)
        except (GoalError, OSError):
            self._keep = False  # no room, or a folder that nobody may write to

    def _from_gallery(self, name: str, records: list[StageRecord]) -> bytes | None:
        """What a stage kept for its page, where the original is gone."""
        with self._gallery_lock:
            if self._gallery is None:
                self._gallery = {}
                for record in records:
                    self._gallery |= _gallery_of(self._store, record)
        return self._gallery.get(name)


def _gallery_of(store: Store, record: StageRecord) -> dict[str, bytes]:
    """Thumbnails that a stage kept, by the name of the image."""
    folder = store.path(record.step)
    try:
        stored = files.read_json(folder / "gallery.json").get("thumbnails", {})
        table = IMAGES if record.kind == "fit" else "predictions.parquet"
        listed = read_columns(folder / table, ["file"])["file"].to_pylist()
        pairs = [(int(key), binascii.a2b_base64(text)) for key, text in stored.items()]
    except (GoalError, OSError, ValueError, KeyError, AttributeError):
        return {}
    return {listed[at]: content for at, content in pairs if 0 <= at < len(listed)}


class _Recent:
    """What was asked for last, within a bound of memory."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._items: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: str, content: bytes) -> None:
        with self._lock:
            self._size += len(content) - len(self._items.pop(key, b""))
            self._items[key] = content
            while self._size > self._most and self._items:
                self._size -= len(self._items.popitem(last=False)[1])
