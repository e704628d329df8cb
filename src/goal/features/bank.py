"""Where models get features from: given by a person, kept in the model's store, or computed now."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.backbone.features import Embedder
from goal.backbone.tokens import Tokens
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.images import Images, Subset
from goal.data.own_images import ImageSet
from goal.features.embed import Part, embed, embed_parts, origin_of
from goal.features.given import known_features
from goal.features.origin import Origin, require_origin
from goal.features.source import FeatureSource, as_tokens
from goal.features.store import FeatureStore

_BATCH = 8192
_KEPT_ROWS = 65_536


class FeatureBank:
    """One feature per image, in the place of the token bank's tokens.

    The backbone is loaded when the first image needs it; features that a person gives never do.
    """

    def __init__(
        self,
        origin: Origin,
        folder: Path,
        load: Callable[[], Embedder] | None,
        reporter: Reporter,
        workers: int = 0,
    ) -> None:
        """Open the bank.

        Args:
            origin: Where features come from; others are refused.
            folder: The store that keeps computed features.
            load: Loads the backbone; None if there is none, and only features are taken.
            reporter: Told how far the work has come.
            workers: Actors of Ray that compute; 0 computes in this process.
        """
        self.origin = origin
        self._folder = folder
        self._load = load
        self._reporter = reporter
        self._workers = workers

    @property
    def fingerprint(self) -> str:
        """What computed the features, and how."""
        return self.origin.fingerprint

    @cached_property
    def embedder(self) -> Embedder:
        """The backbone, if it is the right one."""
        if self._load is None:
            raise GoalError(
                "This model was fitted on features, so it takes features, not images: a .npy, "
                ".npz or .parquet file, or a feature store of `goal embed`."
            )
        found = self._load()
        require_origin(origin_of(found), self.origin, "The features of this backbone")
        return found

    def open(
        self,
        images: Images,
        ids: IntArray,
        augmented_views: bool,
        skipped: dict[int, str] | None = None,
    ) -> FeatureSource:
        """Features of ``images[ids]``, computed and kept unless the store has them.

        An image that cannot be read is an error, unless `skipped` is there to take it.
        """
        wanted = Subset(images, ids)
        if (known := self._known(wanted)) is not None:
            return FeatureSource(known)
        given = ImageSet(wanted, [str(index) for index in ids], [], [])
        digests, lost, store = self._stored(given)
        if lost and skipped is None:
            position, reason = next(iter(lost.items()))
            raise GoalError(f"Image {ids[position]} cannot be read: {reason}.")
        if skipped is not None:
            skipped.update({int(ids[position]): reason for position, reason in lost.items()})
        return FeatureSource(store.features(store.find(digests)))

    def fill(self, given: ImageSet) -> dict[int, str]:
        """Compute what the store lacks; return the unreadable images, by position."""
        return self._stored(given)[1]

    def keep(self, given: ImageSet) -> None:
        """Keep features that came as such, so that what is decided later can be learned from them.

        The store has half precision; features that it cannot hold are not kept.
        """
        known = self._known(given.images)
        if known is None or not len(known):
            return
        store, lost = FeatureStore.ready(self._folder, self.origin), dict[int, str]()
        digests = given.contents(lost)
        with np.errstate(over="ignore"):
            half = known.astype(np.float16)
        fresh = (store.find(digests) < 0) & np.isfinite(half).all(axis=1)
        for start in range(0, len(given), _KEPT_ROWS):
            rows = [at for at in np.flatnonzero(fresh).tolist() if start <= at < start + _KEPT_ROWS]
            names = [given.names[at] for at in rows]
            store.append(names, [digests[at] for at in rows], half[rows])

    def _stored(self, given: ImageSet) -> tuple[list[bytes], dict[int, str], FeatureStore]:
        store = FeatureStore.ready(self._folder, self.origin)
        lost: dict[int, str] = {}
        digests = [digest for digest in given.contents(lost) if digest]
        if (store.find(digests) < 0).any():  # the backbone is needed
            digests, lost = embed(given, store, partial(self._parts, store=store))
        return digests, lost, store

    def passing(self, given: ImageSet, lost: dict[int, str]) -> Iterator[Tokens]:
        """Features of the readable images, batch by batch, in order; nothing is kept."""
        if (known := self._known(given.images)) is not None:
            for start in range(0, len(known), _BATCH):
                yield as_tokens(known[start : start + _BATCH])
            return
        found = self._parts(given, lost, None)
        if self._workers:
            parts = list(found)
            order = np.argsort([at for part in parts for at in part.positions])
            features = np.concatenate([part.features for part in parts])[order]
            for start in range(0, len(features), _BATCH):
                yield as_tokens(features[start : start + _BATCH])
            return
        for part in found:
            yield as_tokens(part.features)

    def _known(self, images: Images) -> npt.NDArray[Any] | None:
        """Features that came as such, checked to be of the right origin."""
        behind = known_features(images)
        if behind is None:
            return None
        require_origin(behind.origin, self.origin, "These features")
        return np.asarray(behind.features[_positions(images)])

    def _parts(
        self, given: ImageSet, lost: dict[int, str], store: FeatureStore | None
    ) -> Iterator[Part]:
        if self._workers:
            from goal.features.ray_engine import embed_parts_on_ray  # needs an extra

            return embed_parts_on_ray(
                given, store, self.embedder, self._reporter, lost, self._workers
            )
        return embed_parts(given, store, self.embedder, self._reporter, lost)


def _positions(images: Images) -> IntArray:
    """Where the images of nested subsets stand in the set at the bottom."""
    if not isinstance(images, Subset):
        return np.arange(len(images.labels))
    return np.asarray(_positions(images.images)[images.ids])
