"""The map: a few thousand images on the plane in which their features vary most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray
from goal.evaluation.chosen import evenly
from goal.evaluation.snapshot import project
from goal.review.closeness import Closeness
from goal.review.listing import Listing

MOST_POINTS = 4000


@dataclass(frozen=True)
class Plane:
    """Where some images lie; it stays when their classes change.

    Attributes:
        rows: Which images, as rows of the listing.
        points: Where each lies, with two columns.
        explained: Share of the variance that the plane holds.
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
    features = closeness.unit(rows).astype(np.float64)
    points, _, explained = project(features, np.empty((0, features.shape[1])))
    return Plane(rows, points, float(explained))
