"""What to look at first: questions about a model, in an order meant to teach it much.

First typical and diverse images of each new class; then, in turn, an image between two classes, two
classes that may be one, and a class that may be several.

Shapes: N images, D features, M new classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from goal.common.arrays import IntArray
from goal.methods.parts.asking import Questions
from goal.models.classes import Roster
from goal.models.table import Table

SHOWN = 4  # images that a question about classes shows
_SAMPLE = 500  # images of a class that it is cut in two by
_ROUNDS = 10

Features = npt.NDArray[np.float32]
Kind = Literal["typical", "diverse", "between", "same", "several"]


@dataclass(frozen=True)
class Question:
    """Something a person would best look at.

    Attributes:
        kind: A typical image of a class, a different one, one between two classes; two classes
            that may be the same, a class that may be several.
        classes: Ids of the classes it is about.
        digests: The images to look at.
        files: What they are called.
        why: The question in words.
    """

    kind: Kind
    classes: tuple[int, ...]
    digests: tuple[bytes, ...]
    files: tuple[str, ...]
    why: str


class _Asked:
    """A model's images with features, and its classes."""

    def __init__(self, table: Table, roster: Roster, rows: IntArray, features: Features) -> None:
        self.table, self.names, self.rows, self.features = table, roster.names, rows, features
        stages = {id: roster.known(id).stage for id in roster.ids()}
        self.new = [id for id, stage in stages.items() if stage > 0]
        self.labelled = [id for id, stage in stages.items() if stage == 0]
        self.ids, self.second = table.class_id[rows], table.second_id[rows]
        self.answered = table.answered[rows]

    def question(self, kind: Kind, classes: list[int], places: list[int], why: str) -> Question:
        rows = self.rows[places].tolist()
        digests = tuple(self.table.digests[row] for row in rows)
        return Question(
            kind, tuple(classes), digests, tuple(self.table.files[r] for r in rows), why
        )

    # -- images -----------------------------------------------------------------------------------

    def images(self) -> Iterator[Question]:
        """Questions about one image each."""
        if not self.new:
            return
        told = np.flatnonzero(self.answered).tolist()
        points, shares = torch.from_numpy(self.features).double(), torch.from_numpy(self._shares())
        seen = {id: int((self.ids[told] == id).sum()) for id in self.new}
        for place in Questions(points, shares, told):
            own, other = int(self.ids[place]), int(self.second[place])
            if own in seen and seen[own] < 2:
                kind: Kind = "diverse" if seen[own] else "typical"
                likeness = "unlike the others asked about" if seen[own] else "typical"
                why = f"Is this {self.names[own]}? It is {likeness}."
                yield self.question(kind, [own], [place], why)
            elif min(own, other) >= 0:
                why = f"Is this {self.names[own]} or {self.names[other]}?"
                yield self.question("between", [own, other], [place], why)
            if own in seen:
                seen[own] += 1

    def _shares(self) -> npt.NDArray[np.float64]:
        """How much each image belongs to each new class, by its best and second-best class."""
        sure = self.table.confidence[self.rows]
        less = np.clip(sure - self.table.margin[self.rows], 0, None)
        found = np.zeros((len(self.rows), len(self.new)))
        for column, id in enumerate(self.new):
            found[:, column] = (self.ids == id) * sure + (self.second == id) * less
        return np.clip(found, 0, 1)

    # -- classes ----------------------------------------------------------------------------------

    def pairs(self) -> Iterator[Question]:
        """Pairs of classes, a new one among them, that most images lie between."""
        doubt = 1 - np.clip(self.table.margin[self.rows], 0, 1)
        between: dict[tuple[int, int], float] = {}
        for own, other, weight in zip(self.ids.tolist(), self.second.tolist(), doubt, strict=True):
            if own >= 0 and other >= 0 and (own in self.new or other in self.new):
                pair = (min(own, other), max(own, other))
                between[pair] = between.get(pair, 0.0) + float(weight)
        for first, second in sorted(between, key=lambda pair: -between[pair]):
            here = ((self.ids == first) & (self.second == second)) | (
                (self.ids == second) & (self.second == first)
            )
            places = np.flatnonzero(here)
            shown = places[np.argsort(-doubt[places], kind="stable")][:SHOWN].tolist()
            why = f"Are {self.names[first]} and {self.names[second]} the same?"
            yield self.question("same", [first, second], shown, why)

    def parted(self) -> Iterator[Question]:
        """New classes that fall into two parts more than any labelled class does."""
        usual = max((self._cut(id)[0] for id in self.labelled), default=0.0)
        cuts = {id: self._cut(id) for id in self.new}
        for id in sorted(self.new, key=lambda id: -cuts[id][0]):
            explained, shown = cuts[id]
            if explained > usual:
                why = f"Is {self.names[id]} one class, or several?"
                yield self.question("several", [id], shown, why)

    def _cut(self, id: int) -> tuple[float, list[int]]:
        """Share of a class's scatter that one cut in two explains, and images of both sides."""
        members = np.flatnonzero(self.ids == id)
        members = members[:: -(-len(members) // _SAMPLE) or 1]
        if len(members) < 2 * SHOWN:
            return 0.0, []
        away = self.features[members] - self.features[members].mean(axis=0)
        along = away @ np.linalg.svd(away, full_matrices=False)[2][0]
        for _ in range(_ROUNDS):
            side = along > along.mean()
            if side.all() or not side.any():
                return 0.0, []
            apart = away[side].mean(axis=0) - away[~side].mean(axis=0)
            along = away @ apart
        weight = side.mean() * (1 - side.mean())
        whole = max(float(np.square(away).sum(axis=1).mean()), 1e-12)
        explained = weight * float(apart @ apart) / whole
        order = np.argsort(along)
        ends = [*order[: SHOWN // 2].tolist(), *order[-SHOWN // 2 :].tolist()]
        return explained, members[ends].tolist()


def questions(
    table: Table, roster: Roster, rows: IntArray, features_ND: Features, count: int
) -> list[Question]:
    """What to ask, first things first.

    Args:
        table: The images of a model, under today's decisions.
        roster: Its classes.
        rows: Rows of the table whose features are known.
        features_ND: These, of unit length.
        count: How many questions, at most.
    """
    asked = _Asked(table, roster, rows, features_ND)
    about_images = list(islice(asked.images(), 4 * count))
    first = [one for one in about_images if one.kind != "between"]
    between = [one for one in about_images if one.kind == "between"]
    rest = zip_longest(between, asked.pairs(), asked.parted())
    turns = (one for turn in rest for one in turn if one is not None)
    return list(islice(chain(first, turns), count))
