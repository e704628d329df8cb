"""One pass of the backbone over images; what a feature store holds already is not computed again.

While the backbone works on one part of the images, other threads decode and crop the next one.
Finished parts are written to the store now and then, so a killed pass goes on where it was.

Shapes: N images, D features, S side of the crop.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from goal.backbone.features import Embedder
from goal.common.arrays import Pixels
from goal.common.process import Pause
from goal.common.progress import Reporter
from goal.data.decoding import UnreadableImage
from goal.data.images import content_digest
from goal.data.own_images import ImageSet
from goal.data.transforms import prepared
from goal.features.origin import Origin
from goal.features.store import FeatureStore

_READERS = min(8, os.cpu_count() or 1)
_SHARD_ROWS = 16_384
_SHARD_SECONDS = 30.0
BATCH = 64


def origin_of(embedder: Embedder) -> Origin:
    """Where the features of an embedder come from."""
    return Origin(
        backbone=embedder.name,
        fingerprint=embedder.fingerprint(),
        reads=embedder.reads,
        width=embedder.width,
        image_size=embedder.preprocessing.image_size,
    )


Parts = Callable[[ImageSet, dict[int, str]], Iterator["Part"]]


def embed(given: ImageSet, store: FeatureStore, parts: Parts) -> tuple[list[bytes], dict[int, str]]:
    """Put the features of all readable images into the store, unless it has them.

    Args:
        given: The images.
        store: The store; its folder's lock is held.
        parts: Computes features, part by part, in any order, and enters unreadable images.

    Returns:
        Digest of each readable image, in order; and the others, by position, with the reason.
    """
    lost: dict[int, str] = {}
    digests: dict[int, bytes] = {}
    draft = _Draft(store)
    for part in parts(given, lost):
        digests.update(zip(part.positions, part.digests, strict=True))
        new = [row for row, digest in enumerate(part.digests) if draft.lacks(digest)]
        draft.add(
            [given.names[part.positions[row]] for row in new],
            [part.digests[row] for row in new],
            part.features[new],
        )
    draft.write()
    return [digests[index] for index in range(len(given)) if index not in lost], lost


@dataclass(frozen=True)
class Part:
    """Some images: their positions in the set, digests and features."""

    positions: list[int]
    digests: list[bytes]
    features: npt.NDArray[np.float16]


def embed_parts(
    given: ImageSet,
    store: FeatureStore | None,
    embedder: Embedder,
    reporter: Reporter,
    lost: dict[int, str],
) -> Iterator[Part]:
    """Features of the readable images, part by part, in order.

    Args:
        given: The images.
        store: Features that need not be computed again.
        embedder: The backbone.
        reporter: Told how far it has come.
        lost: Where images that prove unreadable are entered, by position, with the reason.
    """
    starts = range(0, len(given), BATCH)

    def read(index: int) -> tuple[bytes, Pixels | None] | None:
        try:
            digest = content_digest(given.images, index)
            if store is not None and store.find([digest])[0] >= 0:
                return digest, None
            return digest, prepared(given.images.image(index), embedder.preprocessing)
        except UnreadableImage as error:
            lost[index] = error.reason
            return None

    with ThreadPoolExecutor(_READERS) as pool:

        def begin(start: int) -> list[Future[tuple[bytes, Pixels | None] | None]]:
            return [pool.submit(read, at) for at in range(start, min(start + BATCH, len(given)))]

        upcoming = begin(0)
        try:
            for start in reporter.track(starts, len(starts), "Computing features"):
                results = [future.result() for future in upcoming]
                upcoming = begin(start + BATCH)
                read_here = [
                    (start + offset, *result)
                    for offset, result in enumerate(results)
                    if result is not None
                ]
                if read_here:
                    yield _finite(_features(read_here, store, embedder), lost)
        finally:
            for future in upcoming:
                future.cancel()


def _features(
    read: Sequence[tuple[int, bytes, Pixels | None]],
    store: FeatureStore | None,
    embedder: Embedder,
) -> Part:
    """Features of one batch: of crops by the backbone, of the others from the store."""
    positions, digests, crops = (list(column) for column in zip(*read, strict=True))
    features = np.empty((len(read), embedder.width), np.float16)
    fresh = [row for row, crop in enumerate(crops) if crop is not None]
    if fresh:
        features[fresh] = run(embedder, np.stack([crops[row] for row in fresh]))
    known = [row for row, crop in enumerate(crops) if crop is None]
    if known:
        assert store is not None
        features[known] = store.features(store.find([digests[row] for row in known]))
    return Part(positions, digests, features)


def _finite(part: Part, lost: dict[int, str]) -> Part:
    """Leave out images for which the backbone gives no numbers."""
    good = np.isfinite(part.features).all(axis=1)
    if good.all():
        return part
    for row in np.flatnonzero(~good).tolist():
        lost[part.positions[row]] = "the backbone gives no finite numbers for it"
    kept = np.flatnonzero(good).tolist()
    positions, digests = part.positions, part.digests
    return Part([positions[at] for at in kept], [digests[at] for at in kept], part.features[kept])


@torch.no_grad()
def run(embedder: Embedder, crops: Pixels) -> npt.NDArray[np.float16]:
    """Features of at most `BATCH` crops (N, 3, S, S), as float16.

    The batch is filled up: products of other shapes round differently, and an image's feature must
    not depend on what it is computed with.
    """
    filled = np.zeros((BATCH, *crops.shape[1:]), np.uint8)
    filled[: len(crops)] = crops
    device = embedder.mean.device
    features = embedder(torch.from_numpy(filled).to(device))[: len(crops)]
    return np.asarray(features.cpu().numpy().astype(np.float16))


@dataclass
class _Draft:
    """Rows gathered for the next shard."""

    store: FeatureStore
    names: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    features: list[npt.NDArray[np.float16]] = field(default_factory=list)
    pause: Pause = field(default_factory=lambda: Pause(_SHARD_SECONDS))

    def __post_init__(self) -> None:
        self._held: set[bytes] = set()

    def lacks(self, digest: bytes) -> bool:
        """Whether neither store nor draft has the image; from now on the draft has."""
        if digest in self._held or self.store.find([digest])[0] >= 0:
            return False
        self._held.add(digest)
        return True

    def add(
        self, names: list[str], digests: list[bytes], features: npt.NDArray[np.float16]
    ) -> None:
        """Take rows; write them out when they are many or it has been long."""
        self.names += names
        self.digests += digests
        self.features.append(features)
        if len(self.names) >= _SHARD_ROWS or self.pause.over():
            self.write()

    def write(self) -> None:
        """Add the rows to the store as one shard."""
        if self.names:
            self.store.append(self.names, self.digests, np.concatenate(self.features))
        self.names, self.digests, self.features = [], [], []
        self._held.clear()
        self.pause.restart()
