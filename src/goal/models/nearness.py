"""Which classes of a model lie near each other: kept with each step, shown as a tree.

A step keeps where its classes lie: the means of the pretrained feature, in deviations of images
about their class mean, along the few directions in which the means differ most. All methods have
these, and they need no backbone to be read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from goal.models.classes import Roster
from goal.models.store import StageRecord, Store
from goal.numerics.tree import Branch, Places, class_tree, merge_candidates
from goal.storage import files
from goal.storage.manifest import MOST_BYTES

NEAR = "near.f32"
DIRECTIONS = 64
DRAWN = 300  # classes that a page draws as a tree

_ROW, _WIDTH, _NAMES = 20, 640, 230  # pixels: of a class, of the picture, of its names
_LONGEST = 34  # characters of a name that fit there


def places_of(means: npt.ArrayLike, within: npt.ArrayLike) -> bytes:
    """What ``near.f32`` holds, in 32-bit floats: how many classes, and where each of them lies.

    Args:
        means: Means of all classes, (K, D).
        within: Covariance of features about their class mean, (D, D).
    """
    means_KD, within_DD = np.asarray(means, np.float64), np.asarray(within, np.float64)
    size = max(float(np.trace(within_DD)) / len(within_DD), 1e-8)
    # Drawn half-way to a ball, as where images are held against known classes.
    round_ = (within_DD + size * np.eye(len(within_DD))) / 2
    places = np.linalg.solve(np.linalg.cholesky(round_), means_KD.T).T
    places -= places.mean(axis=0)
    directions = np.linalg.svd(places, full_matrices=False)[2][:DIRECTIONS]
    return written(places @ directions.T)


def written(places_Kd: npt.ArrayLike) -> bytes:
    """Places of classes as ``near.f32`` has them."""
    places = np.asarray(places_Kd, "<f4")
    return np.concatenate([np.array([len(places)], "<f4"), places.ravel()]).tobytes()


def _read(content: bytes, classes: int) -> Places | None:
    """Places of so many classes, (classes, d); None if the file holds others."""
    values = np.frombuffer(content[: len(content) // 4 * 4], "<f4")
    if len(values) < 1 + classes or values[0] != classes or (len(values) - 1) % classes:
        return None  # a class without any image has no place
    return values[1:].reshape(classes, -1)


@dataclass(frozen=True)
class Nearness:
    """Where the classes of a model lie, merged ones together.

    Attributes:
        ids: Ids of the classes, ascending.
        names: Their names.
        num_labelled: So many of them, the first, were learned from labels.
        places: Where they lie, (classes, directions).
    """

    ids: Sequence[int]
    names: Sequence[str]
    num_labelled: int
    places: Places

    @cached_property
    def tree(self) -> Branch:
        """The classes as a tree."""
        return class_tree(self.places)

    def pairs(self) -> list[tuple[int, int]]:
        """Ids of classes that may be one, nearest first."""
        found = merge_candidates(self.places, self.num_labelled)
        return [(self.ids[first], self.ids[second]) for first, second in found]

    def candidates(self) -> list[tuple[str, str]]:
        """The same by name."""
        called = dict(zip(self.ids, self.names, strict=True))
        return [(called[first], called[second]) for first, second in self.pairs()]

    def lines(self) -> Iterator[str]:
        """Yield the tree as text: a line for each class, and for each group its height."""
        waiting = [(self.tree, "", "")]
        while waiting:
            branch, mine, below = waiting.pop()
            if not branch.sides:
                yield mine + self.names[branch.classes[0]]
                continue
            yield f"{mine}{branch.height:.1f}"
            first, second = branch.sides
            waiting.append((second, f"{below}└─ ", f"{below}   "))
            waiting.append((first, f"{below}├─ ", f"{below}│  "))


@dataclass(frozen=True)
class Drawing:
    """A tree as a picture: names on the left, joined to the right as far as they lie apart.

    Attributes:
        width: Of the picture, pixels.
        height: Of the picture.
        names: For each class its height in the picture, its name, and as much of it as fits.
        joins: For each group a path.
    """

    width: int
    height: int
    names: list[tuple[float, str, str]]
    joins: list[str]


def drawing(near: Nearness) -> Drawing | None:
    """Draw the tree; None if it would say nothing, or be too long to read."""
    if not 2 < len(near.names) <= DRAWN:
        return None
    rows: dict[tuple[int, ...], float] = {
        (id,): _ROW * (place + 0.5) for place, id in enumerate(near.tree.classes)
    }
    joins = []
    for branch in _bottom_up(near.tree):
        first, second = (_end(side, rows, near.tree.height) for side in branch.sides)
        rows[branch.classes] = (first[1] + second[1]) / 2
        across, _ = _end(branch, rows, near.tree.height)
        joins.append(f"M{first[0]:.1f} {first[1]:.1f}H{across:.1f}V{second[1]:.1f}H{second[0]:.1f}")
    names = [(rows[(id,)], near.names[id], _short(near.names[id])) for id in near.tree.classes]
    return Drawing(_WIDTH, _ROW * len(names), names, joins)


def nearness(store: Store, records: Sequence[StageRecord], roster: Roster) -> Nearness | None:
    """Read where a model's classes lie; None where its steps did not say.

    A class that others were merged into lies in the middle of them all. What a person made since
    lies nowhere yet.
    """
    last = next((record for record in reversed(records) if record.kind != "extend"), None)
    path = None if last is None else store.path(last.step) / NEAR
    if last is None or path is None or not path.is_file():
        return None
    store.require_intact(last.step, NEAR)
    places = _read(files.read_bytes(path, MOST_BYTES), last.num_seen)
    if places is None:
        return None
    members: Mapping[int, list[int]] = {id: [] for id in roster.ids()}
    for id, owner in enumerate(roster.owner[: len(places)]):
        if owner in members:  # junk lies nowhere
            members[owner].append(id)
    there = {id: part for id, part in members.items() if part}
    if not there:
        return None
    middles = np.stack([places[part].mean(axis=0) for part in there.values()])
    labelled = sum(roster.known(id).stage == 0 for id in there)
    return Nearness(list(there), [roster.names[id] for id in there], labelled, middles)


def _bottom_up(tree: Branch) -> list[Branch]:
    """Groups of classes, smaller ones before those they are in."""
    found, waiting = [], [tree]
    while waiting:
        branch = waiting.pop()
        if branch.sides:
            found.append(branch)
            waiting.extend(branch.sides)
    return found[::-1]


def _end(
    branch: Branch, rows: Mapping[tuple[int, ...], float], highest: float
) -> tuple[float, float]:
    """Where the line of a branch ends, from which it is joined with another."""
    share = branch.height / highest if highest else 0.0
    return _NAMES + 10 + share * (_WIDTH - _NAMES - 20), rows[branch.classes]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
