"""The map: a few thousand images on the plane in which the classes differ most.

Shapes: M images on the map, C classes, D features.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.arrays import FloatArray, IntArray
from goal.evaluation.chosen import evenly
from goal.review.closeness import Closeness
from goal.review.listing import Listing

MOST_POINTS = 4000
_MOST_MEANS = 1000


@dataclass(frozen=True)
class Plane:
    """Where some images lie; it stays when their classes change.

    Attributes:
        rows: Which images, as rows of the listing.
        points: Where each lies, with two columns.
        explained: Share of the images' variance that the plane holds.
    """

    rows: IntArray
    points: npt.NDArray[np.float32]
    explained: float

    def plain(self, listing: Listing) -> dict[str, Any]:
        """The map as the page draws it."""
        return {
            "images": [listing.digests[row].hex() for row in self.rows.tolist()],
            "classes": listing.ids[self.rows].tolist(),
            "points": np.round(self.points.astype(np.float64), 4).tolist(),
            "explained": round(self.explained, 3),
            "all": len(listing),
        }


def plane_of(listing: Listing, closeness: Closeness | None) -> Plane | None:
    """Put images of every class on a plane, evenly chosen; None without features."""
    if closeness is None or len(listing) < 3:
        return None
    rows = np.sort(evenly(np.argsort(listing.ids, kind="stable"), MOST_POINTS))
    features_MD = closeness.unit(rows).astype(np.float64)
    centred_MD = features_MD - features_MD.mean(axis=0)
    ids = listing.ids[rows]
    means_CD = np.stack([centred_MD[ids == id].mean(axis=0) for id in np.unique(ids)])
    points = centred_MD @ _plane(means_CD if len(means_CD) > 3 else centred_MD[:_MOST_MEANS])
    explained = (points**2).sum() / max((centred_MD**2).sum(), 1e-12)
    return Plane(rows, points.astype(np.float32), float(explained))


def _plane(rows_CD: FloatArray) -> FloatArray:
    """The two directions in which a few rows vary most, (D, 2), by the small matrix of products."""
    centred_CD = rows_CD - rows_CD.mean(axis=0)
    _, weights = np.linalg.eigh(centred_CD @ centred_CD.T)
    axes_D2 = centred_CD.T @ weights[:, ::-1][:, :2]
    # An axis has two directions: take the one in which its largest part is positive.
    largest = np.abs(axes_D2).argmax(axis=0)
    axes_D2 = axes_D2 * np.sign(axes_D2[largest, np.arange(2)])
    return np.asarray(axes_D2 / np.linalg.norm(axes_D2, axis=0).clip(1e-12))
