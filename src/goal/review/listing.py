"""All images that a model has learned, as the page lists them: by class, in some order."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from goal.common.arrays import IntArray
from goal.models.table import Table


@dataclass(frozen=True)
class Listing:
    """The table of a model's images, ready to be asked for a class, an image, or a number."""

    table: Table

    def __len__(self) -> int:
        return len(self.table)

    @property
    def digests(self) -> list[bytes]:
        """What each image is known by."""
        return self.table.digests

    @property
    def ids(self) -> IntArray:
        """Class of each image; -1 for none of them."""
        return self.table.class_id

    @cached_property
    def row_of(self) -> dict[bytes, int]:
        """Row of each image, by its digest."""
        return {digest: row for row, digest in enumerate(self.digests)}

    @cached_property
    def _by_class(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.ids, kind="stable")
        return order, self.ids[order]

    def members(self, id: int) -> IntArray:
        """Rows of a class, or of the images that are in none (-1)."""
        order, sorted_ids = self._by_class
        low, high = np.searchsorted(sorted_ids, [id, id + 1])
        return order[low:high]

    def counts(self) -> dict[int, int]:
        """Images of each class."""
        ids, sizes = np.unique(self.ids, return_counts=True)
        return dict(zip(ids.tolist(), sizes.tolist(), strict=True))

    def place(self, row: int) -> str:
        """Where the file of an image was, as far as anybody knows."""
        return self.table.paths[row] or self.table.files[row]
