"""The classes of a model as people see them: names, sizes, vertices, and what is merged."""

from collections.abc import Sequence
from dataclasses import dataclass

from goal.common.errors import GoalError, did_you_mean
from goal.common.escaping import visible
from goal.models.history import Action, Judgement
from goal.models.records import StageRecord

_LONGEST = 200


@dataclass(frozen=True)
class KnownClass:
    """One class.

    Attributes:
        id: Its number, the same for ever.
        name: Its name.
        stage: The stage that brought it: 0 with labels, others without.
        since: When that was (UTC).
        size: Images counted to it so far, over all stages.
        vertex: The vertex it owns, where the method has any.
        merged: Ids of the classes merged into it.
    """

    id: int
    name: str
    stage: int
    since: str
    size: int
    vertex: int | None
    merged: tuple[int, ...]


class Roster:
    """All classes of a model, with a person's corrections applied."""

    def __init__(self, records: Sequence[StageRecord], judgement: Judgement) -> None:
        self.latest = records[-1].index if records else 0
        self.judgement = judgement.without(records[-1].num_seen if records else 0)
        self._record_of = [record for record in records for _ in record.names]
        given = [name for record in records for name in record.names]
        _require_order(records)
        self._vertices = [vertex for record in records for vertex in _vertices(record)]
        self.names = [self.judgement.names.get(str(id), name) for id, name in enumerate(given)]
        self.owner = [self.judgement.merged.get(str(id), id) for id in range(len(given))]
        if any(self.owner[owner] != owner for owner in self.owner):
            raise GoalError(
                "The list of merged classes is damaged: a class is merged into one that is merged "
                "itself. Restore the model from a copy."
            )
        self._sizes = [0] * len(given)
        for record in records:
            for key, count in record.sizes.items():
                self._sizes[self.owner[int(key)]] += count

    def ids(self) -> list[int]:
        """Ids of the classes that are not merged into another, ascending."""
        return [id for id, owner in enumerate(self.owner) if id == owner]

    def classes(self) -> list[KnownClass]:
        """The classes that are not merged into another."""
        return [self.known(id) for id in self.ids()]

    def known(self, id: int) -> KnownClass:
        """The class with an id."""
        record = self._record_of[id]
        merged = tuple(i for i, owner in enumerate(self.owner) if owner == id and i != id)
        return KnownClass(
            id,
            self.names[id],
            record.index,
            record.created,
            self._sizes[id],
            self._vertices[id],
            merged,
        )

    def find(self, name: str) -> int:
        """Id of the class with a name; merged classes can still be named."""
        if name in self.names:
            matches = [id for id, other in enumerate(self.names) if other == name]
            return next((id for id in matches if self.owner[id] == id), matches[0])
        raise GoalError(
            f"The model has no class {name!r}.{did_you_mean(name, self.names)} "
            "`goal classes` lists them all."
        )

    def renamed(self, name: str, to: str) -> Action:
        """The action by which the class called `name` is called `to`."""
        id, wanted = self.find(name), class_name(to)
        if wanted in self.names and self.names.index(wanted) != id:
            raise GoalError(
                f"There is a class {wanted!r} already. Choose another name, or say that both are "
                "one class: `goal merge`."
            )
        said = f"the renaming of {name} to {wanted}"
        return Action(kind="rename", said=said, ids=[id], name=wanted)

    def merged(self, keep: str, others: Sequence[str]) -> Action:
        """The action by which other classes count as the first one."""
        target = self.owner[self.find(keep)]
        roots = {self.owner[self.find(other)] for other in others}
        if target in roots:
            raise GoalError(f"{keep!r} cannot be merged with itself.")
        moved = [id for id, owner in enumerate(self.owner) if owner in roots]
        said = f"the merging of {', '.join(others)} into {keep}"
        return Action(kind="merge", said=said, ids=moved, into=target)

    def unmerged(self, name: str) -> Action:
        """The action by which a merged class stands for itself again."""
        id = self.find(name)
        if self.owner[id] == id:
            raise GoalError(f"The class {name!r} is not merged into another.")
        said = f"the parting of {name} from {self.names[self.owner[id]]}"
        return Action(kind="unmerge", said=said, ids=[id])

    def fresh_names(self, count: int) -> list[str]:
        """Names for new classes: new-1, new-2, ..., past those in use."""
        discovered = sum(record.index > 0 for record in self._record_of)
        found: list[str] = []
        number = discovered
        while len(found) < count:
            number += 1
            if f"new-{number}" not in self.names:
                found.append(f"new-{number}")
        return found


def _require_order(records: Sequence[StageRecord]) -> None:
    """Raise an error unless each step's classes go on where those of the step before ended."""
    known = 0
    for record in records:
        if record.num_known != known:
            raise GoalError(
                f"Step {record.step} of the model goes on from {record.num_known} classes, but "
                f"there were {known}: one of its steps is damaged. Restore it from a copy."
            )
        known = record.num_seen


def _vertices(record: StageRecord) -> list[int | None]:
    return record.vertices or [None] * len(record.names)


def class_name(text: str) -> str:
    """Check a class name, with odd characters spelt out and blanks tidied."""
    name = visible(" ".join(text.split()))
    if not name:
        raise GoalError("A class name must have at least one visible character.")
    if len(name) > _LONGEST:
        raise GoalError(f"A class name has at most {_LONGEST} characters; given: {len(name)}.")
    return name


def class_names(texts: Sequence[str]) -> list[str]:
    """Check the names of the labelled classes; no two may be alike."""
    names = [class_name(text) for text in texts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GoalError(f"Two classes have the name {twice[0]!r}. Rename one of them.")
    return names
