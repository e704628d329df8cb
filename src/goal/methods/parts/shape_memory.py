"""A memory of classes that cannot forget: each one's mean, and a little of its own shape.

In a whitened space class c is a Gaussian around its mean with the covariance

    A_c = (1 - s) I + s S_c,    S_c its sample covariance, scaled to the trace of I

so all classes have the same size and mostly the same shape. Of S_c the largest `rank` directions
are kept: as many as matter, for a class has fewer samples than dimensions. The mean is that of all
its images, the shape that of at most `MOST` of them: a shape needs no more, and costs the most.

Shapes: N images, K classes, d dimensions, r rank.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOST = 1024  # images of a class that its shape is taken from

_CHUNK = 8192
_ROOM = 1 << 22  # numbers along own directions that are looked at together
_NONE = 1e-4  # below it an image's weight, over the largest in its class, counts as none


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
        totals_K = shares_NK.sum(dim=0, dtype=torch.float64)
        chunks = zip(shares_NK.split(_CHUNK), points_Nd.split(_CHUNK), strict=True)
        sums_Kd = sum((share.to(part).T @ part).double() for share, part in chunks)
        found_K1 = (totals_K > 1e-3)[:, None]
        means_Kd = sums_Kd / totals_K.clamp_min(1e-12)[:, None]
        means_Kd = torch.where(found_K1, means_Kd, instead_Kd.to(means_Kd))
        self.means = torch.cat([self.means, means_Kd])
        shapes = [
            self._shape(points_Nd, weights_N, mean_d)
            for weights_N, mean_d in zip(shares_NK.T, means_Kd, strict=True)
        ]
        if shapes:
            directions, spreads = map(torch.stack, zip(*shapes, strict=True))
            self.directions = torch.cat([self.directions, directions])
            self.spreads = torch.cat([self.spreads, spreads * found_K1])

    def extend(self, count: int) -> None:
        """Append so many classes that have neither a mean nor a shape."""
        for name in ("means", "directions", "spreads"):
            rows = getattr(self, name)
            setattr(self, name, torch.cat([rows, rows.new_zeros(count, *rows.shape[1:])]))

    def keep(self, places: Sequence[int]) -> None:
        """Let class i be what stands at ``places[i]``; whatever else there is, is forgotten."""
        for name in ("means", "directions", "spreads"):
            setattr(self, name, getattr(self, name)[list(places)])

    def _shape(self, points_Nd: Tensor, weights_N: Tensor, mean_d: Tensor) -> tuple[Tensor, Tensor]:
        """Largest principal directions of weighted samples and s times the variances there."""
        dimensions, rank = self.directions.shape[1:]
        members = (weights_N > _NONE * weights_N.amax()).nonzero()[:, 0]
        members = members[:: -(-len(members) // MOST) or 1]
        away = (points_Nd[members].double() - mean_d) * weights_N[members].double().sqrt()[:, None]
        right_dr, variances = _principal(away, rank)
        variances = variances * dimensions / away.square().sum().clamp_min(1e-12)
        directions = self.directions.new_zeros(dimensions, rank)
        directions[:, : len(variances)] = right_dr.to(directions)
        spreads = self.spreads.new_zeros(rank)
        spreads[: len(variances)] = self.share * variances
        return directions, spreads

    def forward(self, points_Nd: Tensor) -> Tensor:
        """``log N(x; mean_c, A_c)`` but for a constant, (N, K), in the precision of the points."""
        # By Woodbury's identity, with a = 1 - s and b_j the spreads:
        # x' A^-1 x = (|x|^2 - sum_j b_j / (a + b_j) (u_j' x)^2) / a
        kind, rest = points_Nd.dtype, 1 - self.share
        weights_K1r = (self.spreads / (rest + self.spreads)).sqrt().to(kind)[:, None]
        u_Kdr, means_Kd = self.directions.to(kind) * weights_K1r, self.means.to(kind)
        volume_K = torch.log1p(self.spreads / rest).sum(dim=1).to(kind)
        offset = torch.einsum("kd,kdr->kr", means_Kd, u_Kdr).flatten()
        u_de = u_Kdr.transpose(0, 1).flatten(1)  # e: every direction of every class
        found = []
        for part in points_Nd.split(max(1, _ROOM // max(1, len(offset)))):
            along_NKr = torch.addmm(-offset, part, u_de).unflatten(1, self.spreads.shape)
            squared_NK = part.square().sum(dim=1, keepdim=True) - 2 * part @ means_Kd.T
            squared_NK = squared_NK + means_Kd.square().sum(dim=1)
            squared_NK = squared_NK - along_NKr.square().sum(dim=2)
            found.append(-(squared_NK / rest + volume_K) / 2)
        return torch.cat(found)


def _principal(away_nd: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Largest principal directions, (d, r), and their sums of squares, from the smaller square."""
    count, dimensions = away_nd.shape
    wide = count < dimensions
    square = away_nd @ away_nd.T if wide else away_nd.T @ away_nd
    values, vectors = torch.linalg.eigh(square)
    kept = min(rank, len(values))
    values, vectors = values[-kept:].flip(0).clamp_min(0), vectors[:, -kept:].flip(1)
    if wide:
        # A direction without variance has no use: its place stays zero instead of noise.
        real = values > 1e-10 * values[:1]
        vectors = away_nd.T @ (vectors * torch.where(real, values, 1).rsqrt()) * real
    return vectors, values
