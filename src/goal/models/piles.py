"""A pile of images, sorted out: what is new in it, what was learned before, what comes twice.

Images are told apart by a digest of their content, so that copies of a file are one image.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from goal.backbone.tokens import TokenSource
from goal.common.arrays import IntArray
from goal.data.own_images import ImageSet
from goal.models.predictions import Predictions
from goal.models.store import StageRecord, Store

IMAGES = "images.parquet"


class Learned(NamedTuple):
    """An image that a stage has learned: the stage, its class id then, and how sure that was."""

    stage: int
    id: int
    confidence: float


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
        owner = found.roster.owner
        kept = [content for at, content in enumerate(self.fresh_contents) if at not in lost]
        answers = {
            content: (owner[known.id], known.confidence) for content, known in self.learned.items()
        }
        answers.update(
            zip(kept, zip(found.ids.tolist(), found.confidence.tolist(), strict=True), strict=True)
        )
        unread = {self.fresh_contents[at]: reason for at, reason in lost.items()}
        bad = {at: unread[content] for at, content in enumerate(self.contents) if content in unread}
        left = [content for content in self.contents if content not in unread]
        fresh = set(kept)
        first = {content: at for at, content in reversed(list(enumerate(left)))}
        images = self.given.without(bad)
        ids = np.array([answers[content][0] for content in left], dtype=np.int64)
        sure = np.array([answers[content][1] for content in left], dtype=np.float64)
        table = Predictions(images.names, ids, sure, found.roster, found.latest, images.skipped)
        positions = [at for content, at in first.items() if content in fresh]
        return images, table, np.array(sorted(positions), dtype=np.int64)


@dataclass(frozen=True)
class Work:
    """What a stage is learned from: a pile, its fresh images that can be read, their tokens."""

    pile: Pile
    lost: dict[int, str]
    kept: ImageSet
    tokens: TokenSource

    @property
    def kept_contents(self) -> list[bytes]:
        """Digests of the images that can be read."""
        listed = enumerate(self.pile.fresh_contents)
        return [content for position, content in listed if position not in self.lost]


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


def images_table(contents: Sequence[bytes], kept: ImageSet, found: Predictions) -> bytes:
    """What ``images.parquet`` of a stage holds; `path` is as in `ImageSet.places`."""
    table = pyarrow.table(
        {
            "file": kept.names,
            "path": pyarrow.array(kept.places(), pyarrow.string()),
            "digest": pyarrow.array(list(contents), pyarrow.binary()),
            "class_id": found.ids,
            "confidence": found.confidence,
        }
    )
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def learned_images(store: Store, records: Iterable[StageRecord]) -> dict[bytes, Learned]:
    """All images that a model has learned, by digest; stages of older versions do not say."""
    found: dict[bytes, Learned] = {}
    for record in records:
        path = store.path(record.step) / IMAGES
        if not path.exists():
            continue
        store.require_intact(record.step, IMAGES)
        with path.open("rb") as stream:
            rows = pyarrow.parquet.read_table(stream).to_pydict()
        for digest, id, sure in zip(
            rows["digest"], rows["class_id"], rows["confidence"], strict=True
        ):
            found[digest] = Learned(record.index, id, sure)
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
