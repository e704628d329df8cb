"""A memory of classes that cannot forget: each one's mean, and a little of its own shape.

In a whitened space class c is a Gaussian around its mean with the covariance

    A_c = (1 - s) I + s S_c,    S_c its sample covariance, scaled to the trace of I

so all classes have the same size and mostly the same shape. Of S_c the largest `rank` directions
are kept: as many as matter, for a class has fewer samples than dimensions.

Shapes: N images, K classes, d dimensions, r rank.
"""

import torch
from torch import Tensor, nn

_CHUNK = 1024


class ShapeMemory(nn.Module):
    """Means and shapes of classes; grows by classes, never changes one."""

    means: Tensor  # (K, d)
    directions: Tensor  # (K, d, r), zero where a class has fewer
    spreads: Tensor  # (K, r): s times the variance along each direction

    def __init__(self, dimensions: int, share: float, rank: int) -> None:
        super().__init__()
        self.share = share
        self.register_buffer("means", torch.zeros(0, dimensions, dtype=torch.float64))
        self.register_buffer("directions", torch.zeros(0, dimensions, rank))
        self.register_buffer("spreads", torch.zeros(0, rank, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.means)

    def learn(self, points_Nd: Tensor, shares_NK: Tensor, instead_Kd: Tensor) -> None:
        """Append K classes, to which image n belongs with weight ``shares_NK[n, k]``.

        A class without images takes its row of `instead_Kd` as its mean, and no shape.
        """
        for weights, instead in zip(shares_NK.T.double(), instead_Kd.double(), strict=True):
            total = weights.sum()
            found = bool(total > 1e-3)
            mean = weights @ points_Nd / total if found else instead
            directions, spreads = self._shape(points_Nd - mean, weights)
            self.means = torch.cat([self.means, mean[None]])
            self.directions = torch.cat([self.directions, directions[None]])
            self.spreads = torch.cat([self.spreads, spreads[None] * found])

    def _shape(self, away_Nd: Tensor, weights_N: Tensor) -> tuple[Tensor, Tensor]:
        """Largest principal directions of weighted samples and s times the variances there."""
        dimensions, rank = self.directions.shape[1:]
        _, singular, right = torch.linalg.svd(
            away_Nd * weights_N.sqrt()[:, None], full_matrices=False
        )
        variances = singular.square()
        variances = variances * dimensions / variances.sum().clamp_min(1e-12)
        kept = min(rank, len(variances))
        directions = self.directions.new_zeros(dimensions, rank)
        directions[:, :kept] = right[:kept].T.to(directions)
        spreads = self.spreads.new_zeros(rank)
        spreads[:kept] = self.share * variances[:kept]
        return directions, spreads

    def forward(self, points_Nd: Tensor) -> Tensor:
        """``log N(x; mean_c, A_c)`` but for a constant, (N, K)."""
        return torch.cat([self._scores(chunk) for chunk in points_Nd.split(_CHUNK)])

    def _scores(self, points_Nd: Tensor) -> Tensor:
        # By Woodbury's identity, with a = 1 - s and b_j the spreads:
        # x' A^-1 x = (|x|^2 - sum_j b_j / (a + b_j) (u_j' x)^2) / a
        rest = 1 - self.share
        squared_NK = points_Nd.square().sum(dim=1, keepdim=True) - 2 * points_Nd @ self.means.T
        squared_NK = squared_NK + self.means.square().sum(dim=1)
        u_Kdr = self.directions.to(points_Nd.dtype)
        along_NKr = torch.einsum("nd,kdr->nkr", points_Nd, u_Kdr)
        along_NKr = along_NKr - torch.einsum("kd,kdr->kr", self.means, u_Kdr)
        explained = (along_NKr.square() * (self.spreads / (rest + self.spreads))).sum(dim=2)
        volume = torch.log1p(self.spreads / rest).sum(dim=1)
        return -((squared_NK - explained) / rest + volume) / 2
