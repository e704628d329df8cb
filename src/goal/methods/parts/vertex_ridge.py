"""Analytic alignment: ridge regression from a feature to the vertex of its class.

    W = (X'X + gamma v I)^-1 X'P,    X labelled features less their mean, P the vertices of their
                                     classes, v the mean variance of a feature's numbers

is the closed form of GOAL's supervised alignment for a linear map (squared error in the place of
the dot product). X'X and X'P are sums over images: adding images later gives exactly what all
images at once would have given.

Shapes: N images, D features, E dimensions of the simplex.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goal.numerics.clustering import assign, class_means
from goal.numerics.simplex import VertexLedger


class VertexRidge(nn.Module):
    """A linear map onto the simplex, learned from sums; and which class owns which vertex."""

    gram: Tensor  # X'X, (D, D)
    cross: Tensor  # X'P, (D, E)
    centre: Tensor  # (D,)
    count: Tensor
    map: Tensor  # W, (D, E)

    def __init__(self, vertices: int, dim: int, gamma: float, seed: int) -> None:
        super().__init__()
        self.gamma = gamma
        self.ledger = VertexLedger(vertices, dim, seed)
        for name in ("gram", "cross", "map"):
            self.register_buffer(name, torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("centre", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, features_ND: Tensor) -> Tensor:
        """Unit-length places of features among the vertices, (N, E)."""
        mapped = (features_ND.double() - self.centre) @ self.map
        return F.normalize(mapped, dim=1).to(features_ND)

    def fit(self, features_ND: Tensor, labels_N: Tensor, count: int) -> None:
        """Give classes 0 to `count` their vertices, and learn the map."""
        classes = torch.arange(count, device=labels_N.device)
        self.ledger.claim(classes, classes)
        self.centre = features_ND.double().mean(dim=0)
        width, dim = features_ND.shape[1], self.ledger.vertices.shape[1]
        self.gram = self.centre.new_zeros(width, width)
        self.cross = self.centre.new_zeros(width, dim)
        self.add(features_ND, labels_N)

    def add(self, features_ND: Tensor, labels_N: Tensor) -> None:
        """Learn more images of classes that own a vertex."""
        away = features_ND.double() - self.centre
        self.gram = self.gram + away.T @ away
        self.cross = self.cross + away.T @ self.ledger.directions(labels_N).double()
        self.count = self.count + len(away)
        penalty = self.gamma * self.gram.diagonal().mean().clamp_min(1e-12)
        ridge = self.gram + penalty * torch.eye(len(self.gram)).to(self.gram)
        self.map = torch.linalg.solve(ridge, self.cross)

    def claim(self, features_ND: Tensor, clusters_N: Tensor, first: int, count: int) -> None:
        """Give new classes `first`, ... the free vertices nearest to their mean places.

        The simplex grows if need be; classes beyond one per dimension go without.
        """
        size, dim = self.ledger.vertices.shape
        short = count - len(self.ledger.free())
        if short > 0 and size < dim:
            self.ledger.extend(min(max(2 * size, size + short), dim))
        free = self.ledger.free()
        means = class_means(self(features_ND), clusters_N, count)
        chosen = assign(means @ self.ledger.vertices[free].T)
        given = chosen >= 0
        classes = torch.arange(first, first + count, device=free.device)
        self.ledger.claim(classes[given], free[chosen[given]])
