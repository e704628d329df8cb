"""Whitening: principal directions, scaled so that the scatter within classes is a sphere.

Fitted on labelled features once and fixed. In it the nearest class mean is the best guess if all
classes share one shape, and the distance to a mean has the same unit in every direction.

Shapes: N images, D features, d directions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goal.numerics.clustering import class_means

SPHERE = 0.1  # share of a sphere in the scatter: invertible, however few the samples


class Whitening(nn.Module):
    """``normalise((f - centre) @ axes) @ whitener``, all in double precision.

    Without `unit_length` nothing is normalised: the length of a feature means something then.
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
        return self._reduce(features_ND.double()) @ self.whitener

    def _reduce(self, features_ND: Tensor) -> Tensor:
        reduced = (features_ND - self.centre) @ self.axes
        return F.normalize(reduced, dim=1) if self.unit_length else reduced

    def fit(self, features_ND: Tensor, classes_N: Tensor, count: int) -> None:
        """Take the directions of largest variance, then the scatter within classes along them."""
        features = features_ND.double()
        dimensions = max(1, min(self.dimensions, len(features) - 1, features.shape[1]))
        self.centre = features.mean(dim=0)
        away = features - self.centre
        axes = torch.linalg.eigh(away.T @ away).eigenvectors
        self.axes = axes[:, -dimensions:].flip(1)
        points = self._reduce(features)
        within = points - class_means(points, classes_N, count)[classes_N]
        scatter = within.T @ within / len(within)
        size = scatter.diagonal().mean().clamp_min(1e-8)
        round_ = size * torch.eye(dimensions).to(scatter)
        values, vectors = torch.linalg.eigh((1 - SPHERE) * scatter + SPHERE * round_)
        self.whitener = vectors / values.sqrt()
