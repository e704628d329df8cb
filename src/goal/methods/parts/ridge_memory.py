"""A classifier that cannot forget: ridge regression on a random expansion, learned recursively.

    h(f) = relu(f P),    Q = argmin |H Q - Y|^2 + gamma |Q|^2    over everything ever learned

P is random and fixed, H stacks the expanded features of all samples so far and Y their one-hot
classes. Only R = (H^T H + gamma I)^-1 and Q are kept. A batch (H_b, Y_b) updates both exactly:

    K = (I + H_b R H_b^T)^-1 H_b R,    Q <- Q + K^T (Y_b - H_b Q),    R <- R - (H_b R)^T K

so that learning in parts equals learning all at once. New classes are new columns of Q: to the
samples before them they are zeros, as one-hot targets have it.

Shapes: N samples, D feature width, M expanded width, C classes.
"""

import torch
from torch import Tensor, nn

BATCH = 512


class RidgeMemory(nn.Module):
    """Recursive least squares, in double precision: the recursion loses digits at every update."""

    projection: Tensor
    inverse: Tensor  # R, (M, M); empty until the first sample
    solution: Tensor  # Q, (M, C)

    def __init__(self, width: int, expanded: int, gamma: float, rng: torch.Generator) -> None:
        super().__init__()
        self.gamma = gamma
        self.register_buffer("projection", torch.randn(width, expanded, generator=rng).double())
        self.register_buffer("inverse", torch.empty(0, 0, dtype=torch.float64))
        self.register_buffer("solution", torch.empty(expanded, 0, dtype=torch.float64))

    @property
    def num_classes(self) -> int:
        """Classes learned so far."""
        return self.solution.shape[1]

    def forward(self, features_ND: Tensor) -> Tensor:
        """Score features against all classes, (N, C), in the features' precision."""
        return (self._expand(features_ND) @ self.solution).to(features_ND.dtype)

    def _expand(self, features_ND: Tensor) -> Tensor:
        return (features_ND.double() @ self.projection).relu()

    @torch.no_grad()
    def learn(self, features_ND: Tensor, classes_N: Tensor, num_classes: int) -> None:
        """Take in samples, after making room for `num_classes` classes in all."""
        if not len(self.inverse):
            identity = torch.eye(len(self.solution), dtype=torch.float64)
            self.inverse = identity.to(self.solution.device) / self.gamma
        room = self.solution.new_zeros(len(self.solution), num_classes - self.num_classes)
        self.solution = torch.cat([self.solution, room], dim=1)
        parts = zip(features_ND.split(BATCH), classes_N.split(BATCH), strict=True)
        for features, classes in parts:
            if len(features):
                self._update(self._expand(features), nn.functional.one_hot(classes, num_classes))

    def _update(self, expanded_NM: Tensor, targets_NC: Tensor) -> None:
        projected = expanded_NM @ self.inverse
        inner = projected @ expanded_NM.T
        inner.diagonal().add_(1.0)
        gain_NM = torch.linalg.solve(inner, projected)
        self.solution = self.solution + gain_NM.T @ (targets_NC - expanded_NM @ self.solution)
        self.inverse = self.inverse - projected.T @ gain_NM
