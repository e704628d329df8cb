"""The simplex of class directions, and the ledger of which class owns which vertex."""

import math

import torch
from torch import Tensor, nn

from goal.common.errors import GoalError

UNOWNED = -1


def simplex_etf(num_vertices: int, dim: int, seed: int) -> Tensor:
    """Build a simplex equiangular tight frame (GOAL, eq. 1) in float64.

    ``P = sqrt(K / (K - 1)) U (I - 11^T / K)`` with `U` the orthonormal factor of a seeded
    Gaussian matrix, so all vertices are unit vectors and any two have cosine ``-1 / (K - 1)``
    (eq. 2; eq. 3 says the same by the columns of `U`).

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

    Vertices and claims are buffers, so the ledger travels with the state dict of its owner. When
    vertices run out, `extend` makes room.
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
                f"(at most {self.vertices.shape[1]} here), set method.expand_vertices, or extend "
                f"the simplex yourself (VertexLedger.extend)."
            )

    def extend(self, num_vertices: int) -> Tensor:
        """Make the simplex larger while the owned vertices move as little as possible.

        All simplices of one size differ by a rotation or reflection only. Of these the one is
        taken whose first vertices have the least sum of squared distances from the owned ones
        (orthogonal Procrustes), so the result is again an exact simplex and no other would
        have moved them less. Owned vertices keep their indices.

        Args:
            num_vertices: New size, more than now.

        Returns:
            By how many degrees each owned vertex turned, in the order of their indices, float64.
        """
        size, dim = self.vertices.shape
        if not size < num_vertices <= dim:
            raise GoalError(
                f"The simplex has {size} vertices and can be extended to at most {dim}, one per "
                f"dimension of the embedding; {num_vertices} were asked for. For more, start "
                f"again with a wider projector (method.projector_out)."
            )
        owned = (self.owners != UNOWNED).nonzero().flatten().cpu()
        old_OD = self.vertices[owned.to(self.vertices.device)].cpu().double()
        fresh_KD = simplex_etf(num_vertices, dim, seed=0)
        left, _, right = torch.linalg.svd(fresh_KD[: len(owned)].T @ old_OD)
        turned_KD = fresh_KD @ left @ right
        rest = torch.ones(num_vertices, dtype=torch.bool)
        rest[owned] = False
        vertices = torch.empty_like(turned_KD)
        vertices[owned], vertices[rest] = turned_KD[: len(owned)], turned_KD[len(owned) :]
        added = self.owners.new_full((num_vertices - size,), UNOWNED)
        self.vertices = vertices.to(self.vertices)
        self.owners = torch.cat([self.owners, added])
        cosines = torch.nn.functional.cosine_similarity(vertices[owned], old_OD, dim=1)
        return torch.rad2deg(torch.acos(cosines.clamp(-1, 1)))

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
