"""What a person can do on the page: each action is one call of a `Model` method."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from goal.common.errors import GoalError
from goal.common.section import Section
from goal.data.own_images import ImageSet
from goal.features.given import FeatureImages
from goal.features.store import FeatureStore
from goal.models.classes import Roster
from goal.models.model import Model

MOST_IMAGES = 200_000
Kind = Literal[
    "rename", "merge", "unmerge", "move", "reject", "confirm", "split", "junk", "undo", "redo"
]


class Action(Section):
    """What the page asks for.

    Attributes:
        kind: What to do.
        version: The model as the page shows it.
        images: Digests of the images it is about.
        classes: Ids of the classes it is about: the renamed, confirmed, split or junk one, the one
            that images are not of, or those merged into another.
        into: The class that stays, or that images are of.
        name: The new name; with `move`, that of a class to be made.
        entry: The decision to take back; the last one if it is left out.
    """

    kind: Kind
    version: str = Field(max_length=64)
    images: list[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]] = Field(
        default_factory=list, max_length=MOST_IMAGES
    )
    classes: list[int] = Field(default_factory=list, max_length=10_000)
    into: int | None = None
    name: str | None = Field(default=None, max_length=2000)
    entry: int | None = None


def available(model: Model) -> list[str]:
    """The kinds of actions that a model knows; only one that learns makes classes of images."""
    if model.learns:
        return [*_PERFORMED, "teach"]
    return [kind for kind in _PERFORMED if kind != "split"]


def perform(model: Model, roster: Roster, wanted: Action) -> None:
    """Do what was asked for, once it has been checked to be about what there is."""
    for id in [*wanted.classes, *([] if wanted.into is None else [wanted.into])]:
        if not 0 <= id < len(roster.names) or not roster.present[id]:
            raise GoalError(f"The model has no class with the id {id}.")
    _PERFORMED[wanted.kind](model, _Names(roster, wanted), wanted)


class _Names:
    """The names of what an action is about; what is missing is an error."""

    def __init__(self, roster: Roster, wanted: Action) -> None:
        self._roster, self._wanted = roster, wanted

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        if not self._wanted.classes:
            raise GoalError(f"To {self._wanted.kind}, choose a class.")
        return [self._roster.names[id] for id in self._wanted.classes]

    @property
    def into(self) -> str:
        """Name of the class that stays."""
        if self._wanted.into is None:
            raise GoalError(f"To {self._wanted.kind}, choose the class to go to.")
        return self._roster.names[self._wanted.into]

    @property
    def images(self) -> list[str]:
        """Digests of the images."""
        if not self._wanted.images:
            raise GoalError(f"To {self._wanted.kind}, select images first.")
        return self._wanted.images


def _rename(model: Any, names: _Names, wanted: Action) -> None:
    if wanted.name is None:
        raise GoalError("To rename a class, give a name.")
    model.rename(names.classes[0], wanted.name)


def _move(model: Any, names: _Names, wanted: Action) -> None:
    """Move images to a class there is, or teach a new one by them."""
    if wanted.into is not None or wanted.name is None:
        model.move(names.images, names.into)
        return
    if wanted.name in model.roster.every_name():
        raise GoalError(f"There is a class {wanted.name!r} already: choose it from the list.")
    digests = [bytes.fromhex(key) for key in names.images]
    table, store = model.table(), FeatureStore(model.store.features)
    rows = store.find(digests)
    if (rows < 0).any():
        raise GoalError("The model keeps no features of these images, so they teach no new class.")
    held = FeatureImages(store.features(rows), digests, store.origin)
    shown = [table.files[table.position[digest]] for digest in digests]
    given = ImageSet(held, shown, list(range(len(shown))), [])
    model.teach(given, [wanted.name] * len(shown))


def _reject(model: Any, names: _Names, wanted: Action) -> None:
    model.reject(names.images, names.classes[0] if wanted.classes else None)


def _undo(model: Any, names: _Names, wanted: Action) -> None:
    model.undo() if wanted.entry is None else model.undo(wanted.entry)


_PERFORMED: Mapping[str, Callable[[Any, _Names, Action], Any]] = {
    "rename": _rename,
    "merge": lambda model, names, _: model.merge(names.into, names.classes),
    "unmerge": lambda model, names, _: model.unmerge(names.classes[0]),
    "move": _move,
    "reject": _reject,
    "confirm": lambda model, names, wanted: model.confirm(names.classes[0], wanted.images),
    "split": lambda model, names, _: model.split(names.classes[0]),
    "junk": lambda model, names, _: model.junk(names.classes[0]),
    "undo": _undo,
    "redo": lambda model, names, _: model.redo(),
}
