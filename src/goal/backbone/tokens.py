"""Tokens: what the frozen trunk hands to the trained tail.

Shapes: B images, n tokens, D width.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Tokens:
    """The trunk's output for some images.

    Attributes:
        normalised: LayerNorm-ed tokens without gain and bias, CLS first, (B, n, D); in half
            precision if they were banked so. For a convolutional last block: the raw map alone.
        cls: The raw CLS token, which the residual stream needs, (B, D); of a convolutional network
            the mean of the map.
        views: Which view of its image each row is, (B,); None if the crop is a new one.
    """

    normalised: Tensor
    cls: Tensor
    views: Tensor | None = None

    def __len__(self) -> int:
        return len(self.cls)

    def to(self, device: torch.device) -> "Tokens":
        """Move to a device."""
        views = None if self.views is None else self.views.to(device)
        return Tokens(self.normalised.to(device), self.cls.to(device), views)

    @staticmethod
    def cat(parts: "list[Tokens]") -> "Tokens":
        """Join batches."""
        return Tokens(
            torch.cat([part.normalised for part in parts]), torch.cat([part.cls for part in parts])
        )


def device_of(module: nn.Module) -> torch.device:
    """Where a module's tensors are; a module without any is on the CPU."""
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


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


class SomeTokens:
    """Some images of a source, in the order of the given positions."""

    def __init__(self, source: TokenSource, positions: Tensor) -> None:
        self._source = source
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        return self._source.clean(self._positions[positions])

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Tokens of two different augmented views of each image."""
        return self._source.pair(self._positions[positions], rng, mine)


def drawn(source: TokenSource, most: int, rng: torch.Generator) -> Tensor:
    """Positions of at most so many images, drawn at random, ascending; all if there are fewer."""
    if len(source) <= most:
        return torch.arange(len(source))
    return torch.randperm(len(source), generator=rng)[:most].sort().values


@runtime_checkable
class RepeatingSource(TokenSource, Protocol):
    """Tokens whose augmented views come from a fixed set, so that work on them can be kept."""

    def drawn_views(self) -> range:
        """Numbers of the views that pairs are drawn from, as `Tokens.views` has them."""

    def view(self, number: int, positions: Tensor) -> Tokens:
        """Tokens of one view."""
