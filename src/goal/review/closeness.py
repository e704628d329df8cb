"""How alike images are, by the features that the model keeps: typical ones, and those between.

Features are held in memory, once; a model without stored features goes by confidence alone.

Shapes: N images, D features.
"""

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.features.store import FeatureStore, HalfArray, is_store
from goal.models.store import Store
from goal.review.listing import Listing

_MOST_BYTES = 4 << 30
_BLOCK = 16_384

Floats = npt.NDArray[np.float32]


class Closeness:
    """Features of the images of a listing, row by row."""

    def __init__(self, features_ND: HalfArray) -> None:
        self._features = features_ND

    @classmethod
    def of(cls, store: Store, listing: Listing) -> "Closeness | None":
        """Features of all images, or None if the model does not keep them, or too many."""
        if not len(listing) or not is_store(store.features):
            return None
        try:
            kept = FeatureStore(store.features)
            if len(listing) * kept.origin.width * 2 > _MOST_BYTES:
                return None
            rows = kept.find(listing.digests)
            return None if (rows < 0).any() else cls(kept.features(rows))
        except GoalError:
            return None

    def unit(self, rows: IntArray) -> Floats:
        """Features of some rows, of unit length."""
        return _unit(self._features[rows].astype(np.float32))

    def mean(self, rows: IntArray) -> Floats:
        """Direction in which some images lie on average, (D,)."""
        return np.asarray(_unit(self.unit(rows).mean(axis=0, keepdims=True))[0])

    def to_mean(self, rows: IntArray) -> Floats:
        """Cosine of each image with the mean of them all."""
        return np.asarray(self.unit(rows) @ self.mean(rows))

    def to(self, feature_D: Floats) -> Floats:
        """Cosine of every image with a feature, block by block."""
        wanted = _unit(feature_D.reshape(1, -1).astype(np.float32))[0]
        found = np.empty(len(self._features), np.float32)
        for start in range(0, len(found), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(found)))
            found[rows] = self.unit(rows) @ wanted
        return found

    def between(self, first: IntArray, second: IntArray, most: int) -> IntArray:
        """Rows of two classes that lie nearest to the border between their means."""
        rows = np.concatenate([first, second])
        apart = self.mean(first) - self.mean(second)
        gaps = self.unit(rows) @ apart
        middle = (gaps[: len(first)].mean() + gaps[len(first) :].mean()) / 2
        return np.asarray(rows[np.argsort(np.abs(gaps - middle), kind="stable")[:most]])


def _unit(rows_ND: Floats) -> Floats:
    return np.asarray(rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True).clip(1e-12))
