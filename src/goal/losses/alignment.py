"""Alignment of embeddings to fixed directions."""

from torch import Tensor


def dot_alignment(embeddings: Tensor, directions: Tensor) -> Tensor:
    """Negative mean inner product of unit embeddings with their target directions.

    GOAL, eq. 4 (supervised, L_Align^s) and eq. 12 (unsupervised, L_Align^u): the two differ only
    in where the targets come from. For unit vectors it is the squared distance up to scale,
    ``|e - p|^2 = 2 - 2 <e, p>``.

    Args:
        embeddings: Unit vectors, (N, E).
        directions: Target unit vectors, (N, E).
    """
    return -(embeddings * directions).sum(dim=1).mean()
