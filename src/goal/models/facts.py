"""What decisions say of images: which class each is of, and which it is not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from goal.models.history import Action


@dataclass(frozen=True)
class Facts:
    """What holds of images, by content digest; of what contradicts itself, the later counts.

    Attributes:
        classes: The class that each is of.
        barred: Classes that each is not of.
        seeds: Images that the parts of split classes start from, by class.
        given: Names of images that were taught and may be in no stage.
        told: Classes that answers were about, besides those of `classes`.
    """

    classes: dict[bytes, int] = field(default_factory=dict)
    barred: dict[bytes, set[int]] = field(default_factory=dict)
    seeds: dict[int, list[bytes]] = field(default_factory=dict)
    given: dict[bytes, str] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)

    @property
    def images(self) -> set[bytes]:
        """Images that something was said of."""
        seeds = {digest for digests in self.seeds.values() for digest in digests}
        return {*self.classes, *self.barred, *seeds}

    @property
    def answered(self) -> set[bytes]:
        """Images that a person looked at."""
        return {*self.classes, *self.barred}


def facts_of(actions: Iterable[Action]) -> Facts:
    """What some decisions, in order, say of images."""
    found = Facts()
    for action in actions:
        digests = [bytes.fromhex(image) for image in action.images]
        if action.kind in ("move", "teach") or (action.kind == "confirm" and digests):
            _say(found, digests, action.targets)
        elif action.kind == "reject":
            _bar(found, digests, action.targets)
        elif action.kind == "split":
            _part(found, digests, action)
        if action.kind == "teach":
            found.given.update(zip(digests, action.files, strict=True))
        if action.kind == "junk":
            _drop(found, set(action.ids))
    return found


def _say(found: Facts, digests: Sequence[bytes], targets: Sequence[int]) -> None:
    for digest, target in zip(digests, targets, strict=True):
        found.classes[digest] = target
        found.barred.get(digest, set()).discard(target)


def _bar(found: Facts, digests: Sequence[bytes], targets: Sequence[int]) -> None:
    for digest, target in zip(digests, targets, strict=True):
        found.barred.setdefault(digest, set()).add(target)
        found.told.add(target)
        if found.classes.get(digest) == target:
            del found.classes[digest]


def _part(found: Facts, digests: Sequence[bytes], action: Action) -> None:
    for id in (*action.ids, *map(int, action.made)):
        found.seeds[id] = [d for d, t in zip(digests, action.targets, strict=True) if t == id]
        found.told.add(id)


def _drop(found: Facts, junk: set[int]) -> None:
    """Images that were said to be of a class which is none are of no class."""
    for digest in [digest for digest, id in found.classes.items() if id in junk]:
        del found.classes[digest]
