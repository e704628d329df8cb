"""Finding one's way among the images of a model: by likeness, by copies, by what is worth asking.

Features are those that the model keeps. Search is exact: every image is compared, block by block.

Shapes: N images, D features.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.data.own_images import ImageSet
from goal.features.bank import FeatureBank
from goal.features.store import FeatureStore, is_store
from goal.models.correcting import Correcting
from goal.models.questions import Question, questions
from goal.models.table import Table
from goal.numerics.copies import originals

_BLOCK = 16_384
_MOST = 100_000  # images among which copies and questions are looked for

Features = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Hit:
    """An image that was searched for.

    Attributes:
        file: What it is called.
        digest: What it is recognised by.
        class_id: Its class; -1 for none.
        cosine: How like the wanted image it is, at most 1.
    """

    file: str
    digest: bytes
    class_id: int
    cosine: float


class Exploring(Correcting):
    """A model folder, opened, in which images are looked for."""

    def search(self, given: ImageSet, top: int = 50) -> list[Hit]:
        """The images most like a given one, the likest first."""
        if top < 1:
            raise GoalError(f"The number of images to find is a whole number from 1; given: {top}.")
        if len(given) != 1:
            raise GoalError(f"Search takes one image at a time; given: {len(given)}.")
        wanted, table = self._feature(given), self.table()
        rows, places, store = self._kept(table)
        best, cosines = np.empty(0, np.int64), np.empty(0, np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            found = _unit(store.features(places[block])) @ wanted
            best = np.concatenate([best, rows[block]])
            cosines = np.concatenate([cosines, found])
            order = np.lexsort((best, -cosines))[:top]
            best, cosines = best[order], cosines[order]
        return [
            Hit(table.files[row], table.digests[row], int(table.class_id[row]), float(cosine))
            for row, cosine in zip(best.tolist(), cosines, strict=True)
        ]

    def duplicates(self) -> list[list[Hit]]:
        """Groups of images that are near-copies of one, the largest group first."""
        table, gap = self.table(), self._current().method.usual_gap
        if not gap:
            raise GoalError(
                "This model does not know how far apart images usually are: only goal-plus does, "
                "in its frozen forms and fitted by this version. Fit it again."
            )
        rows, places, store = self._kept(table, _MOST)
        features = _unit(store.features(places))
        first = originals(features, gap)
        return [
            [
                Hit(
                    table.files[rows[at]],
                    table.digests[rows[at]],
                    int(table.class_id[rows[at]]),
                    float(features[at] @ features[group[0]]),
                )
                for at in group.tolist()
            ]
            for group in sorted(_groups(first), key=len, reverse=True)
        ]

    def next(self, count: int = 20) -> list[Question]:
        """What a person would best look at, first things first."""
        if count < 1:
            raise GoalError(f"The number of questions is a whole number from 1; given: {count}.")
        table, roster = self.table(), self.roster
        rows, places, store = self._kept(table, _MOST)
        return questions(table, roster, rows, _unit(store.features(places)), count)

    def _feature(self, given: ImageSet) -> Features:
        """The feature of an image, of unit length, (D,)."""
        bank = self._current().bank
        if not isinstance(bank, FeatureBank):
            raise GoalError(
                f"The method {self.settings.method.name} keeps no features to search in; goal-plus "
                "does, in its frozen forms."
            )
        lost: dict[int, str] = {}
        parts = [tokens.cls.numpy() for tokens in bank.passing(given, lost)]
        if lost or not parts:
            raise GoalError(f"The image cannot be read: {next(iter(lost.values()), 'no image')}.")
        return np.asarray(_unit(np.concatenate(parts))[0])

    def _kept(
        self, table: Table, most: int | None = None
    ) -> tuple[IntArray, IntArray, FeatureStore]:
        """Rows of a table whose features are kept, their places in the store, and the store."""
        if not is_store(self.store.features):
            raise GoalError("This model keeps no features of its images, so there is no search.")
        store = FeatureStore(self.store.features)
        places = store.find(table.digests)
        rows = np.flatnonzero(places >= 0)
        if most is not None and len(rows) > most:
            self.reporter.warn(f"Only {most:,} of {len(rows):,} images are looked at.")
            rows = rows[:: -(-len(rows) // most)]
        return rows, places[rows], store


def _unit(features_ND: npt.NDArray[np.floating]) -> Features:
    whole = np.asarray(features_ND, np.float32)
    return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True).clip(1e-12))


def _groups(first: IntArray) -> Iterator[IntArray]:
    """Positions of the images of each group that has several, the original first."""
    order = np.argsort(first, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(first[order])) + 1):
        if len(group) > 1:
            yield group
