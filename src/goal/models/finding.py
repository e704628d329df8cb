"""Which images a person means: by the name in the tables, by a file's content, or by digest."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from goal.common.arrays import IntArray
from goal.common.errors import GoalError, did_you_mean
from goal.common.escaping import file_name, visible
from goal.data.images import DIGEST_BYTES
from goal.models.table import Table
from goal.storage import files

_SHORTEST = 6  # hexadecimal digits that tell an image
_MOST_NAMES = 5000  # that a misspelt one is compared with
_DIGITS = re.compile(r"[0-9a-f]+")


def find_images(table: Table, wanted: Sequence[str | Path]) -> IntArray:
    """Rows of the images that are meant; an error names the first that is none.

    An image is named as the tables list it, by its whole path, by the name of its file if only one
    is called so, by the path of a copy, or by the first digits of its digest.
    """
    if not len(wanted):
        raise GoalError("Name at least one image: as the tables list it, or by its path.")
    names = _Names(table)
    rows = [names.row(str(one)) for one in wanted]
    return np.array(list(dict.fromkeys(rows)), np.int64)


class _Names:
    """What the images of a model go by."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: dict[str, list[int]] = {}
        for row, (name, path) in enumerate(zip(table.files, table.paths, strict=True)):
            for key in {name, file_name(path or name), Path(name).name}:
                self._rows.setdefault(key, []).append(row)

    def row(self, wanted: str) -> int:
        """The row of one image."""
        listed = self._rows.get(visible(wanted), [])
        exact = [row for row in listed if self._table.files[row] == visible(wanted)]
        found = exact or listed
        if len(found) == 1:
            return found[0]
        by_content = self._by_content(Path(wanted)) or self._by_digest(wanted)
        if by_content is not None:
            return by_content
        if found:
            raise GoalError(
                f"{len(found)} images are called {visible(wanted)}. Give the path as the tables "
                f"list it: {', '.join(self._table.files[row] for row in found[:3])}."
            )
        near = did_you_mean(visible(wanted), list(self._rows)[:_MOST_NAMES])
        raise GoalError(
            f"The image {visible(wanted)} is in no stage of the model.{near} To tell the class of "
            "an image that the model has not seen: `goal teach`."
        )

    def _by_content(self, path: Path) -> int | None:
        try:
            if not path.is_file():
                return None
            with files.opened(path, given=True) as stream:
                digest = hashlib.file_digest(stream, "sha256").digest()[:DIGEST_BYTES]
        except (OSError, ValueError, GoalError):
            return None
        return self._table.position.get(digest)

    def _by_digest(self, wanted: str) -> int | None:
        if len(wanted) < _SHORTEST or not _DIGITS.fullmatch(wanted):
            return None
        if len(wanted) == 2 * DIGEST_BYTES:
            return self._table.position.get(bytes.fromhex(wanted))
        digests = enumerate(self._table.digests)
        found = [row for row, digest in digests if digest.hex().startswith(wanted)]
        return found[0] if len(found) == 1 else None
