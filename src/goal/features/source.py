"""Features in the place of tokens: what the whole network gives, and a tail that adds nothing.

A method that only needs the frozen feature runs on these as it does on a backbone cut in two.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens


class FeatureTail(Tail):
    """Hands the feature on: there is nothing left to compute, and nothing to train."""

    def forward(self, *parts: Tokens) -> Tensor:
        """Features of all parts, stacked, (B, D)."""
        return torch.cat([tokens.cls for tokens in parts])


class FeatureSource:
    """Features of a fixed list of images, by position; images have one view each."""

    def __init__(self, features_ND: npt.NDArray[Any]) -> None:
        self.features = features_ND

    def __len__(self) -> int:
        return len(self.features)

    def clean(self, positions: Tensor) -> Tokens:
        """Features as tokens without a grid."""
        return as_tokens(self.features[positions.numpy()])

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Refuse: there are no random views of a feature."""
        raise TypeError("features have no random views; only methods that do not train take them")


def as_tokens(features_ND: npt.NDArray[Any]) -> Tokens:
    """Wrap features, of any floating-point type, as the frozen network's only token."""
    whole = torch.from_numpy(np.ascontiguousarray(features_ND, dtype=np.float32))
    return Tokens(whole.new_empty(len(whole), 0, whole.shape[1]), whole)


class FeatureTrunk(nn.Module):
    """A whole network as a trunk whose only token is the feature, rounded as stores keep it."""

    def __init__(self, embedder: nn.Module) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, pixels: Tensor) -> Tokens:
        """Run the network on uint8 pixels (B, 3, S, S)."""
        features = self.embedder(pixels).half().float()
        return Tokens(features[:, None][:, :0], features)
