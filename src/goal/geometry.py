"""The simplex of class directions, and the ledger of which class owns which vertex."""

import math

import torch
from torch import Tensor, nn

from goal.errors import GoalError

UNOWNED = -1


def simplex_etf(num_vertices: int, dim: int, seed: int) -> Tensor:
    """Build a simplex equiangular tight frame (GOAL, eq. 1) in float64.

    ``P = sqrt(K / (K - 1)) U (I - 11^T / K)`` with `U` the orthonormal factor of a seeded
    Gaussian matrix, so all vertices are unit vectors and any two have cosine ``-1 / (K - 1)``.

    Args:
        num_vertices: K, at least 2 and at most `dim`.
        dim: Length of each vertex.
        seed: Chooses the rotation; equal seeds give equal frames.

    Returns:
        The vertices as rows, shape (K, dim), float64.
    """
    if num_vertices < 2:
        raise GoalError(f"A simplex needs at least 2 vertices; {num_vertices} were asked for.")
    if num_vertices > dim:
        raise GoalError(
            f"{num_vertices} vertices do not fit into {dim} dimensions: a simplex ETF has at most "
            f"one vertex per dimension. Use at most {dim} vertices (method.num_vertices) or a "
            f"wider projector (method.projector_out)."
        )
    generator = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(dim, num_vertices, generator=generator, dtype=torch.float64)
    basis, _ = torch.linalg.qr(gaussian)
    centred = basis - basis.mean(dim=1, keepdim=True)
    vertices: Tensor = math.sqrt(num_vertices / (num_vertices - 1)) * centred.T
    return vertices.contiguous()


class VertexLedger(nn.Module):
    """A fixed simplex whose vertices are claimed by classes, each once and for ever.

    Vertices and claims are buffers, so the ledger travels with the state dict of its owner.
    """

    vertices: Tensor
    owners: Tensor

    def __init__(self, num_vertices: int, dim: int, seed: int) -> None:
        super().__init__()
        self.register_buffer("vertices", simplex_etf(num_vertices, dim, seed).float())
        self.register_buffer("owners", torch.full((num_vertices,), UNOWNED))

    def free(self) -> Tensor:
        """Indices of the vertices nobody owns."""
        return (self.owners == UNOWNED).nonzero().flatten()

    def claim(self, classes: Tensor, vertices: Tensor) -> None:
        """Give ``vertices[i]`` to ``classes[i]``; refuse anything already owned or owning."""
        if len(classes) != len(vertices):
            raise ValueError(f"{len(classes)} classes cannot claim {len(vertices)} vertices")
        if len(vertices.unique()) < len(vertices) or len(classes.unique()) < len(classes):
            raise ValueError("one claim names a class or a vertex twice")
        if bool((torch.cat([classes, vertices]) < 0).any()):
            raise ValueError("classes and vertices are numbered from 0")
        taken = vertices[self.owners[vertices] != UNOWNED]
        if len(taken):
            raise ValueError(f"vertices {taken.tolist()} already have an owner")
        settled = classes[torch.isin(classes, self.owners)]
        if len(settled):
            raise ValueError(f"classes {settled.tolist()} already own a vertex")
        self.owners[vertices] = classes

    def require_free(self, count: int) -> None:
        """Raise a clear error unless `count` vertices are still free."""
        if len(self.free()) < count:
            raise GoalError(
                f"{count} new classes need a vertex each, but only {len(self.free())} of "
                f"{len(self.owners)} are free. Start with a larger method.num_vertices "
                f"(at most {self.vertices.shape[1]} here)."
            )

    def vertex_of(self, classes: Tensor) -> Tensor:
        """Vertex index of each class, `UNOWNED` where a class owns none."""
        owns = (classes[:, None] == self.owners) & (self.owners != UNOWNED)
        return torch.where(owns.any(dim=1), owns.int().argmax(dim=1), UNOWNED)

    def directions(self, classes: Tensor) -> Tensor:
        """Unit vectors of the vertices that `classes` own, shape (len(classes), dim)."""
        indices = self.vertex_of(classes)
        if bool((indices == UNOWNED).any()):
            missing = classes[indices == UNOWNED].tolist()
            raise ValueError(f"classes {missing} own no vertex")
        return self.vertices[indices]
