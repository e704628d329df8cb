"""Every image that a model learned, under today's decisions: what people look at and correct."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goal.common.arrays import BoolArray, FloatArray, IntArray
from goal.features.store import FeatureStore, is_store
from goal.learning.learner import Learner
from goal.models.classes import Roster
from goal.models.facts import Facts
from goal.models.looking import pooled, two_best
from goal.models.records import StageRecord
from goal.models.requests import USUAL
from goal.models.rows import NONE, Rows
from goal.models.store import Store
from goal.models.teaching import frozen_memory

_BATCH = 4096


@dataclass(frozen=True)
class Table:
    """One row per image.

    Attributes:
        files: What each was called.
        paths: Absolute path of its file, None where it had none.
        digests: What it is recognised by.
        stage: The stage that learned it; -1 for images that were only taught.
        class_id: Its class; -1 for none of them.
        confidence: How sure that is.
        second_id: The class it is next to; -1 where nobody knows.
        margin: How far apart the two are.
        unknown: Whether it is of no class.
        answered: Whether a person said what it is, or is not.
    """

    files: list[str]
    paths: list[str | None]
    digests: list[bytes]
    stage: IntArray
    class_id: IntArray
    confidence: FloatArray
    second_id: IntArray
    margin: FloatArray
    unknown: BoolArray
    answered: BoolArray

    def __len__(self) -> int:
        return len(self.digests)

    @cached_property
    def position(self) -> dict[bytes, int]:
        """Row of each image, by digest."""
        return {digest: row for row, digest in enumerate(self.digests)}

    def members(self, id: int) -> IntArray:
        """Rows of a class."""
        return np.flatnonzero(self.class_id == id)

    def sizes(self) -> dict[int, int]:
        """Images of each class."""
        return dict(Counter(self.class_id[self.class_id != NONE].tolist()))


@dataclass(frozen=True)
class _Found:
    """Best and second-best class of each row, before anybody's answers."""

    ids: IntArray
    confidence: FloatArray
    second: IntArray
    second_confidence: FloatArray

    def put(self, rows: IntArray, other: "_Found") -> None:
        """Enter what was found for some rows."""
        for name in ("ids", "confidence", "second", "second_confidence"):
            getattr(self, name)[rows] = getattr(other, name)


def table_of(
    store: Store,
    records: Sequence[StageRecord],
    roster: Roster,
    rows: Rows,
    facts: Facts,
    held: Sequence[int],
    learner: Learner | None,
) -> Table:
    """The images under what decisions say.

    Args:
        store: The model folder.
        records: Its steps.
        roster: Its classes.
        rows: What the stages noted of their images.
        facts: What decisions say of images.
        held: Numbers of the decisions that teach.
        learner: The model as it knows these decisions, if it learns from them.
    """
    owner = np.array([*roster.owner, NONE])
    found = _Found(
        owner[rows.ids],
        rows.confidence.copy(),
        owner[rows.second],
        rows.second_confidence.copy(),
    )
    if learner is not None:
        for record in records:
            if record.kind == "discover" and set(held) != set(record.minded):
                _look_again(store, record, roster, rows, facts, learner, found)
    _without_barred(roster, rows, facts, found)
    return _answered(_plain(records, rows, found), roster, facts)


def _look_again(
    store: Store,
    record: StageRecord,
    roster: Roster,
    rows: Rows,
    facts: Facts,
    learner: Learner,
    found: _Found,
) -> None:
    """Compare the images of a stage with the classes as they are now."""
    mine = np.flatnonzero(rows.step == record.step)
    if not len(mine) or not is_store(store.features):
        return
    kept = FeatureStore(store.features)
    places = kept.find([rows.digests[row] for row in mine.tolist()])
    mine, places = mine[places >= 0], places[places >= 0]
    columns = roster.columns()
    made = {int(key) for key in roster.judgement.made}
    closed = [id for id in range(record.num_seen, len(roster.owner)) if id not in made]
    ids = np.array([*columns, NONE])
    for start in range(0, len(mine), _BATCH):
        part = mine[start : start + _BATCH]
        features = kept.features(places[start : start + _BATCH]).astype(np.float32)
        scores = _scores(learner, features)
        scores[:, closed] = -torch.inf
        for at, row in enumerate(part.tolist()):
            barred = facts.barred.get(rows.digests[row], ())
            scores[at, [id for id in barred if id < scores.shape[1]]] = -torch.inf
        probabilities = learner.method.probabilities(pooled(scores, roster.owner, columns))
        seen = two_best(probabilities, learner.method.strangeness(scores))
        best, second = (ids[one.numpy()] for one in (seen.best, seen.second))
        out = (rows.ids[part] == NONE) & (seen.strange.numpy() < USUAL)
        found.put(
            part,
            _Found(
                np.where(out, NONE, best),
                np.where(out, 1 - seen.strange.numpy(), seen.confidence.numpy()),
                np.where(out, best, second),
                np.where(out, seen.confidence.numpy(), seen.second_confidence.numpy()),
            ),
        )


def _scores(learner: Learner, features: npt.NDArray[np.float32]) -> Tensor:
    method = frozen_memory(learner)
    assert method is not None
    with torch.no_grad():
        found: Tensor = method.memory(method.deciding(torch.from_numpy(features)))
    return found


def _without_barred(roster: Roster, rows: Rows, facts: Facts, found: _Found) -> None:
    """Images that are said not to be of their class are of their second-best one, or of none."""
    for digest, classes in facts.barred.items():
        row = rows.position.get(digest)
        out = {roster.owner[id] for id in classes if id < len(roster.owner)}
        if row is None or int(found.ids[row]) not in out:
            continue
        second = int(found.second[row])
        found.ids[row] = NONE if second in out else second
        found.confidence[row] = found.second_confidence[row]
        found.second[row], found.second_confidence[row] = NONE, 0.0


def _plain(records: Sequence[StageRecord], rows: Rows, found: _Found) -> Table:
    index = np.array([record.index for record in records])
    nobody = np.zeros(len(rows), np.bool_)
    return Table(
        rows.files,
        rows.paths,
        rows.digests,
        index[rows.step],
        found.ids,
        found.confidence,
        found.second,
        found.confidence - found.second_confidence,
        nobody,
        nobody,
    )


def _answered(table: Table, roster: Roster, facts: Facts) -> Table:
    """What a person said of images counts more than what was found."""
    more = [digest for digest in facts.given if digest not in table.position]
    more = [digest for digest in more if _target(roster, facts, digest) is not None]
    files = [*table.files, *(facts.given[digest] for digest in more)]
    digests, count = [*table.digests, *more], len(more)

    def longer(values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        return np.concatenate([values, np.full(count, fill, values.dtype)])

    ids, sure = longer(table.class_id, NONE), longer(table.confidence, 1.0)
    second, margin = longer(table.second_id, NONE), longer(table.margin, 1.0)
    answered = np.zeros(len(digests), np.bool_)
    position = {digest: row for row, digest in enumerate(digests)}
    for digest in facts.answered & position.keys():
        row, target = position[digest], _target(roster, facts, digest)
        answered[row] = True
        if target is not None:
            if ids[row] != target:
                second[row] = ids[row]
            ids[row], sure[row], margin[row] = target, 1.0, 1.0
    ids[np.isin(ids, roster.judgement.junk)] = NONE
    second[np.isin(second, roster.judgement.junk)] = NONE
    return replace(
        table,
        files=files,
        paths=[*table.paths, *[None] * count],
        digests=digests,
        stage=longer(table.stage, NONE),
        class_id=ids,
        confidence=sure,
        second_id=second,
        margin=margin,
        unknown=ids == NONE,
        answered=answered,
    )


def _target(roster: Roster, facts: Facts, digest: bytes) -> int | None:
    """The class that a person gave an image, if there is such a class now."""
    id = facts.classes.get(digest)
    if id is None or id >= len(roster.present) or not roster.present[id]:
        return None
    return roster.owner[id]
