"""Whitening: principal directions, scaled so that the scatter within classes is a sphere.

Fitted on labelled features once and fixed. In it the nearest class mean is the best guess if all
classes share one shape, and the distance to a mean has the same unit in every direction.

A scatter in d directions is not known from few images: it looks flat where it only was not seen.
So a sphere of the same size counts as d images beside the N labelled ones, a share of d / (d + N).

Shapes: N images, D features, d directions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goal.numerics.clustering import class_means

_CHUNK = 8192


def sphere_share(images: int, dimensions: int) -> float:
    """Share of a sphere in the scatter of so many images along so many directions."""
    return dimensions / (dimensions + images)


class Whitening(nn.Module):
    """``normalise((f - centre) @ axes) @ whitener``.

    Fitted in double precision; images are mapped in single precision, which moves a point by a
    millionth. Without `unit_length` nothing is normalised: then a feature's length means something.
    """

    centre: Tensor  # (D,)
    axes: Tensor  # (D, d)
    whitener: Tensor  # (d, d)

    def __init__(self, dimensions: int, unit_length: bool = True) -> None:
        super().__init__()
        self.unit_length = unit_length
        self.dimensions = dimensions
        self.register_buffer("centre", torch.zeros(0, dtype=torch.float64))
        for name in ("axes", "whitener"):
            self.register_buffer(name, torch.zeros(0, 0, dtype=torch.float64))

    def forward(self, features_ND: Tensor) -> Tensor:
        """Map features to the whitened space, (N, d)."""
        points = self._reduce(features_ND.float())
        return points @ self.whitener.to(points)

    def _reduce(self, features_ND: Tensor) -> Tensor:
        reduced = (features_ND - self.centre.to(features_ND)) @ self.axes.to(features_ND)
        return F.normalize(reduced, dim=1) if self.unit_length else reduced

    def fit(self, features_ND: Tensor, classes_N: Tensor, count: int) -> None:
        """Take the directions of largest variance, then the scatter within classes along them."""
        dimensions = max(1, min(self.dimensions, len(features_ND) - 1, features_ND.shape[1]))
        self.centre = features_ND.mean(dim=0, dtype=torch.float64)
        total = sum(_moment(part.double() - self.centre) for part in features_ND.split(_CHUNK))
        axes = torch.linalg.eigh(total).eigenvectors
        self.axes = axes[:, -dimensions:].flip(1)
        points = torch.cat([self._reduce(part.double()) for part in features_ND.split(_CHUNK)])
        within = points - class_means(points, classes_N, count)[classes_N]
        scatter = _moment(within) / len(within)
        size = scatter.diagonal().mean().clamp_min(1e-8)
        round_ = size * torch.eye(dimensions).to(scatter)
        sphere = sphere_share(len(within), dimensions)
        values, vectors = torch.linalg.eigh((1 - sphere) * scatter + sphere * round_)
        self.whitener = vectors / values.sqrt()


def _moment(away_ND: Tensor) -> Tensor:
    return away_ND.T @ away_ND
