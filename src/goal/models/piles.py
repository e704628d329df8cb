"""A pile of images, sorted out: what is new in it, what was learned before, what comes twice.

Images are told apart by a digest of their content, so that copies of a file are one image.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from goal.backbone.tokens import TokenSource
from goal.common.arrays import BoolArray, IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.own_images import ImageSet
from goal.models.predictions import NONE, Predictions
from goal.models.store import StageRecord, Store
from goal.models.waiting import NOTHING, Waiting, parquet, unsure_of
from goal.storage.tables import column_names, read_columns

IMAGES = "images.parquet"
_LEARNED = ("digest", "class_id", "confidence", "second", "second_confidence")


class Learned(NamedTuple):
    """An image that a stage has learned: the stage, its class id then, and how sure that was."""

    stage: int
    id: int
    confidence: float
    second: int = NONE
    second_confidence: float = 0.0


@dataclass(frozen=True)
class Pile:
    """Images as they were given, and what is new among them.

    Attributes:
        given: All images that can be read.
        contents: Digest of each.
        fresh: One of each image that no stage has learned.
        fresh_contents: Their digests.
        learned: What is known of the others, by digest.
    """

    given: ImageSet
    contents: list[bytes]
    fresh: ImageSet
    fresh_contents: list[bytes]
    learned: dict[bytes, Learned]

    @property
    def seen(self) -> int:
        """Images that a stage has learned."""
        return sum(content in self.learned for content in self.contents)

    @property
    def repeated(self) -> int:
        """Further copies of images that are new."""
        return len(self.contents) - self.seen - len(self.fresh)

    def whole(
        self, found: Predictions, lost: Mapping[int, str]
    ) -> tuple[ImageSet, Predictions, IntArray]:
        """Extend what was found for the fresh images to all that were given.

        Args:
            found: Predictions of the fresh images, less those that proved unreadable.
            lost: The latter, by position among the fresh ones.

        Returns:
            The images, their predictions, and the positions among them that are fresh.
        """
        kept = [content for at, content in enumerate(self.fresh_contents) if at not in lost]
        answers = {**self.learned, **dict(zip(kept, _rows(found), strict=True))}
        unread = {self.fresh_contents[at]: reason for at, reason in lost.items()}
        bad = {at: unread[content] for at, content in enumerate(self.contents) if content in unread}
        left = [content for content in self.contents if content not in unread]
        fresh = set(kept)
        first = {content: at for at, content in reversed(list(enumerate(left)))}
        images = self.given.without(bad)
        table = _table(images, [answers[content] for content in left], found)
        positions = [at for content, at in first.items() if content in fresh]
        return images, table, np.array(sorted(positions), dtype=np.int64)


def _rows(found: Predictions) -> list[Learned]:
    columns = (found.ids, found.confidence, found.second, found.second_confidence)
    return [
        Learned(found.latest, *row)
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _table(images: ImageSet, rows: Sequence[Learned], found: Predictions) -> Predictions:
    """What is known of images, classes counted as they are merged now."""
    owner = {NONE: NONE} | dict(enumerate(found.roster.owner))
    return replace(
        found,
        names=images.names,
        skipped=images.skipped,
        ids=np.array([owner[row.id] for row in rows], np.int64),
        confidence=np.array([row.confidence for row in rows], np.float64),
        second=np.array([owner[row.second] for row in rows], np.int64),
        second_confidence=np.array([row.second_confidence for row in rows], np.float64),
    )


@dataclass(frozen=True)
class Work:
    """What a stage is learned from: a pile, its fresh images that can be read, their tokens.

    `tokens` are those of the images that can be read, then of those that have `waited`, `once`
    those without near-copies; `idle` images go on waiting. `unknown` is the share of known images
    that may come out as of no class.
    """

    pile: Pile
    lost: dict[int, str]
    kept: ImageSet
    tokens: TokenSource
    once: TokenSource
    waited: Waiting = NOTHING
    idle: Waiting = NOTHING
    unknown: float | None = None

    @property
    def kept_contents(self) -> list[bytes]:
        """Digests of the images that can be read."""
        listed = enumerate(self.pile.fresh_contents)
        return [content for position, content in listed if position not in self.lost]

    @property
    def names(self) -> list[str]:
        """Names of all images that were learned from."""
        return [*self.kept.names, *self.waited.names]

    def unsure(self, out: BoolArray, index: int) -> Waiting:
        """What waits after the stage: images of no class, as `out` says, and the idle ones."""
        own, others = out[: len(self.kept)], out[len(self.kept) :]
        fresh = unsure_of(self.kept, self.kept_contents, self.tokens, own, index)
        return self.waited.chosen(others).beside(self.idle).beside(fresh)


def sort_out(given: ImageSet, learned: Mapping[bytes, Learned]) -> Pile:
    """Tell new images from those that were learned before, and count copies once."""
    lost: dict[int, str] = {}
    found = given.contents(lost)
    contents = [content for at, content in enumerate(found) if at not in lost]
    readable = given.without(lost)
    first: dict[bytes, int] = {}
    for position, content in enumerate(contents):
        if content not in learned:
            first.setdefault(content, position)
    known = {content: learned[content] for content in contents if content in learned}
    fresh = readable.chosen(list(first.values()))
    return Pile(readable, contents, fresh, list(first), known)


def images_table(work: Work, found: Predictions) -> bytes:
    """What ``images.parquet`` of a stage holds; `path` is as in `ImageSet.places`.

    An image of no class has the class id -1, and comes again in the stage that names it.
    """
    paths = [*work.kept.places(), *work.waited.places]
    digests = [*work.kept_contents, *work.waited.digests]
    table = pyarrow.table(
        {
            "file": work.names,
            "path": pyarrow.array(paths, pyarrow.string()),
            "digest": pyarrow.array(digests, pyarrow.binary()),
            "class_id": found.ids,
            "confidence": found.confidence,
            "second": found.second,
            "second_confidence": found.second_confidence,
        }
    )
    return parquet(table)


def learned_images(store: Store, records: Iterable[StageRecord]) -> dict[bytes, Learned]:
    """All images that a model has learned, by digest; stages of older versions do not say.

    Those of no class are not among them: they wait (`goal.models.waiting`).
    """
    found: dict[bytes, Learned] = {}
    for record in records:
        path = store.path(record.step) / IMAGES
        if not path.exists():
            continue
        store.require_intact(record.step, IMAGES)
        wanted = [name for name in column_names(path) if name in _LEARNED]
        rows = {name: column.to_pylist() for name, column in read_columns(path, wanted).items()}
        none = [NONE] * len(rows["digest"])  # of before second-best classes were noted
        second, less = rows.get("second", none), rows.get("second_confidence", [0.0] * len(none))
        columns = (rows["class_id"], rows["confidence"], second, less)
        for digest, *row in zip(rows["digest"], *columns, strict=True):
            if not all(type(id) is int and NONE <= id < record.num_seen for id in row[::2]):
                raise GoalError(f"{file_name(path)} is damaged: it has a class that is not there.")
            if row[0] != NONE:
                found[digest] = Learned(record.index, *row)
    return found


def stages_of(pile: Pile) -> str:
    """The stages that learned a pile's images, in words."""
    stages = sorted({known.stage for known in pile.learned.values()})
    listed = ", ".join(str(stage) for stage in stages)
    return f"stage {listed}" if len(stages) == 1 else f"stages {listed}"


def labels_of(some: ImageSet, given: ImageSet, labels: IntArray) -> IntArray:
    """Labels of some of the images that were given."""
    positions = {position: index for index, position in enumerate(given.kept)}
    return labels[[positions[position] for position in some.kept]]
