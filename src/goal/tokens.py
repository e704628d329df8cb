"""Tokens: what the frozen trunk hands to the trained tail.

Shapes: B images, n tokens, D width.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """The trunk's output for some images.

    Attributes:
        normalised: LayerNorm-ed tokens without gain and bias, CLS first, (B, n, D).
        cls: The raw CLS token, which the residual stream needs, (B, D).
    """

    normalised: Tensor
    cls: Tensor

    def __len__(self) -> int:
        return len(self.cls)

    def to(self, device: torch.device) -> "Tokens":
        """Move to a device."""
        return Tokens(self.normalised.to(device), self.cls.to(device))

    @staticmethod
    def cat(parts: "list[Tokens]") -> "Tokens":
        """Join batches."""
        return Tokens(
            torch.cat([part.normalised for part in parts]), torch.cat([part.cls for part in parts])
        )


class TokenSource(Protocol):
    """Tokens of a fixed list of images, by position."""

    def __len__(self) -> int:
        """Count the images."""

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Tokens of two different augmented views of each image.

        With `mine`, only of the images whose numbers in `positions` it lists; the generator is
        used as if for all.
        """
