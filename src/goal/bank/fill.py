"""Filling the token bank: decode, compute and write, each on its own threads.

While the trunk works on one chunk of images, other threads decode and crop the next one, and one
thread rounds, checksums and writes the last. A killed build loses the chunk in work and at most
the one being written.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Trunk
from goal.bank.readers import run_trunk
from goal.bank.shelf import Shelf

Pixels = npt.NDArray[np.uint8]

_DECODERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Missing:
    """Rows to be made: positions of images, which views of them each shelf lacks, their names."""

    positions: Sequence[int]
    absent: list[npt.NDArray[np.bool_]]
    digests: list[bytes]

    def views(self, position: int) -> list[int]:
        """Numbers of the shelves that lack the image."""
        return [number for number, absent in enumerate(self.absent) if absent[position]]

    def batches(self, chunk: int, batch_size: int) -> int:
        """Count the passes of the trunk when so many images are taken at a time."""
        return sum(
            -(-int(absent[part].sum()) // batch_size)
            for part in chunked(self.positions, chunk)
            for absent in self.absent
        )


def chunked(positions: Sequence[int], size: int) -> list[list[int]]:
    """Cut positions into parts of at most `size`."""
    return [list(positions[start : start + size]) for start in range(0, len(positions), size)]


def fill(
    shelves: list[Shelf],
    missing: Missing,
    crops: Callable[[int, list[int]], list[Pixels]],
    trunk: Trunk,
    *,
    chunk: int,
    batch_size: int,
) -> Iterator[None]:
    """Compute and append all missing rows; yields after every pass of the trunk.

    Args:
        shelves: One per view.
        missing: What they lack.
        crops: Decodes the image at a position and cuts out the views with the given numbers;
            nothing for an image that is to be left out.
        trunk: The trunk.
        chunk: Images to work on at a time.
        batch_size: Size of the trunk's batches.
    """
    parts = chunked(missing.positions, chunk)
    with ThreadPoolExecutor(_DECODERS) as decoders, ThreadPoolExecutor(1) as writer:

        def decode(part: list[int]) -> list[Future[list[Pixels]]]:
            return [decoders.submit(crops, at, missing.views(at)) for at in part]

        written: Future[None] | None = None
        upcoming = decode(parts[0]) if parts else []
        try:
            for number, part in enumerate(parts):
                pixels = [future.result() for future in upcoming]
                upcoming = decode(parts[number + 1]) if number + 1 < len(parts) else []
                for view, shelf in enumerate(shelves):
                    batch, names = _of_view(view, part, pixels, missing)
                    tokens: list[Tokens] = []
                    for start in range(0, len(batch), batch_size):
                        some = np.stack(batch[start : start + batch_size])
                        tokens.append(run_trunk(trunk, some, batch_size))
                        yield
                    if tokens:
                        if written is not None:
                            written.result()
                        written = writer.submit(_append, shelf, tokens, names)
            if written is not None:
                written.result()
        finally:
            for future in upcoming:
                future.cancel()


def _of_view(
    view: int, part: list[int], pixels: list[list[Pixels]], missing: Missing
) -> tuple[list[Pixels], list[bytes]]:
    """Crops of one view of a part, and the names of their images."""
    chosen = [
        (crops[missing.views(at).index(view)], missing.digests[at])
        for at, crops in zip(part, pixels, strict=True)
        if crops and missing.absent[view][at]
    ]
    return [crop for crop, _ in chosen], [digest for _, digest in chosen]


def _append(shelf: Shelf, tokens: list[Tokens], digests: list[bytes]) -> None:
    shelf.append(Tokens.cat(tokens), digests)
