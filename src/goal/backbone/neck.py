"""A fixed projection of a trunk's tokens onto their principal directions.

The tokens of a convolutional trunk are wide (2048 in ResNet-50). Projected onto the directions in
which the base images vary most, they shrink the bank and every training step alike. The neck is
fitted once, on images of stage 0, and never trained.
"""

import torch
from torch import Tensor, nn

from goal.common.errors import GoalError


class Neck(nn.Module):
    """``(token - mean) @ directions``; useless until `fit`."""

    mean: Tensor
    directions: Tensor

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        if not 0 < narrow <= wide:
            raise GoalError(f"backbone.neck is {narrow}; this trunk's tokens allow 1 to {wide}.")
        self.register_buffer("mean", torch.zeros(wide))
        self.register_buffer("directions", torch.zeros(wide, narrow))

    def forward(self, tokens: Tensor) -> Tensor:
        """Project tokens (..., wide) to (..., narrow)."""
        if not bool(self.directions.any()):
            raise GoalError(
                "backbone.neck is set, but no neck has been fitted: only `goal run` and its kin, "
                "which have a stage 0 to fit it on, can use one. Leave backbone.neck unset here."
            )
        return (tokens - self.mean) @ self.directions

    def fit(self, tokens_ND: Tensor) -> None:
        """Take mean and principal directions of the tokens, in double precision."""
        tokens = tokens_ND.double()
        mean = tokens.mean(dim=0)
        covariance = (tokens - mean).T @ (tokens - mean) / len(tokens)
        _, vectors = torch.linalg.eigh(covariance)
        directions = vectors.flip(dims=(1,))[:, : self.directions.shape[1]]
        # An eigenvector's sign is arbitrary: make its largest entry positive.
        largest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
        self.mean.copy_(mean)
        self.directions.copy_(directions * largest.sign())
