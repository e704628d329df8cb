"""Where tokens come from: shelves of the token bank, or the trunk itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Trunk
from goal.bank.shelf import RowReader, decode
from goal.common.arrays import IntArray
from goal.data.images import Images
from goal.data.transforms import TransformSettings, augmented, clean


def run_trunk(trunk: Trunk, pixels: npt.NDArray[np.uint8], batch_size: int) -> Tokens:
    """Run the trunk over uint8 crops (N, 3, S, S); the result is on the CPU.

    Every batch is filled up to `batch_size`: matrix products of other shapes round differently,
    and an image's tokens must not depend on what else was missing when they were computed.
    """
    short = -len(pixels) % batch_size
    if short:
        pixels_filled = np.concatenate([pixels, np.zeros((short, *pixels.shape[1:]), np.uint8)])
    else:
        pixels_filled = pixels
    batches = torch.from_numpy(pixels_filled).split(batch_size)
    tokens = Tokens.cat([trunk(batch).to(torch.device("cpu")) for batch in batches])
    return Tokens(tokens.normalised[: len(pixels)], tokens.cls[: len(pixels)])


class BankedTokens:
    """Tokens read from shelves: the clean one first, then the augmented views."""

    def __init__(self, shelves: list[RowReader], rows: list[IntArray]) -> None:
        self._shelves = shelves
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows[0])

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        return self.view(0, positions)

    def view(self, number: int, positions: Tensor) -> Tokens:
        """Tokens of one view; 0 is the clean one."""
        return self._read(torch.full_like(positions, number), positions)

    def drawn_views(self) -> range:
        """Views that pairs are drawn from; a single banked view goes with the clean one."""
        views = len(self._shelves) - 1
        return range(0 if views == 1 else 1, views + 1)

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Two different views of each image; with a single banked view, it and the clean one.

        Views are drawn for all positions; tokens are read of those whose numbers are in `mine`.
        """
        views = len(self._shelves) - 1
        if views < 1:
            raise ValueError("these tokens were opened without augmented views")
        first, second = torch.ones_like(positions), torch.zeros_like(positions)
        if views > 1:
            first = torch.randint(views, positions.shape, generator=rng)
            step = torch.randint(1, views, positions.shape, generator=rng)
            first, second = first + 1, (first + step) % views + 1
        if mine is not None:
            first, second, positions = first[mine], second[mine], positions[mine]
        return self._read(first, positions), self._read(second, positions)

    def _read(self, views: Tensor, positions: Tensor) -> Tokens:
        chosen, where = views.numpy(), positions.numpy()
        found = np.empty(len(where), dtype=self._shelves[0].layout)
        for view in np.unique(chosen):
            places = np.flatnonzero(chosen == view)
            self._shelves[view].into(found, places, self._rows[view][where[places]])
        return replace(decode(found), views=views)


class FreshTokens:
    """Tokens computed on the fly from new random crops: no disk, one trunk pass per view."""

    def __init__(
        self,
        images: Images,
        ids: IntArray,
        trunk: Trunk,
        transform: TransformSettings,
        batch_size: int,
    ) -> None:
        self._images = images
        self._ids = ids
        self._trunk = trunk
        self._transform = transform
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self._ids)

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        crops = [clean(image, self._transform) for image in self._decoded(positions)]
        return run_trunk(self._trunk, np.stack(crops), self._batch_size)

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Tokens of two new random crops of each image, or of those whose numbers are in `mine`."""
        seeds = torch.randint(2**62, (2, len(positions)), generator=rng)
        if mine is not None:
            seeds, positions = seeds[:, mine], positions[mine]
        decoded = self._decoded(positions)
        first, second = (
            np.stack(
                [
                    augmented(image, self._transform, np.random.default_rng(seed))
                    for image, seed in zip(decoded, view.tolist(), strict=True)
                ]
            )
            for view in seeds
        )
        return (
            run_trunk(self._trunk, first, self._batch_size),
            run_trunk(self._trunk, second, self._batch_size),
        )

    def _decoded(self, positions: Tensor) -> list[Any]:
        return [self._images.image(int(self._ids[position])) for position in positions]
