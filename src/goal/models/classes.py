"""The classes of a model as people see them: names, sizes, vertices, and what is merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goal.common.errors import GoalError, did_you_mean
from goal.common.escaping import visible
from goal.models.history import Action, Judgement
from goal.models.records import StageRecord

_LONGEST = 200
_MOST_MADE = 100_000  # classes that decisions bring between two steps


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

    def __init__(
        self,
        records: Sequence[StageRecord],
        judgement: Judgement,
        sizes: Mapping[int, int] | None = None,
    ) -> None:
        """List the classes of a model.

        Args:
            records: Its steps.
            judgement: What a person decided about classes.
            sizes: Images of each class by id; by default as the steps counted them.
        """
        self.latest = records[-1].index if records else 0
        seen = records[-1].num_seen if records else 0
        self.judgement = judged = judgement.without(seen)
        _require_order(records, judged)
        self._record_of = _records_by_id(records, judged)
        given = {int(key): name for key, name in judged.made.items()}
        self._vertices: dict[int, int | None] = {}
        for record in records:
            given.update(enumerate(record.names, record.num_known))
            self._vertices.update(enumerate(_vertices(record), record.num_known))
        total = max([seen, *(id + 1 for id in given)])
        self.names = [judged.names.get(str(id), given.get(id, "")) for id in range(total)]
        self.owner = [judged.merged.get(str(id), id) for id in range(total)]
        if any(owner >= total or self.owner[owner] != owner for owner in self.owner):
            raise GoalError(
                "The list of merged classes is damaged: a class is merged into one that is merged "
                "itself. Restore the model from a copy."
            )
        self.next_id = max(seen, judged.free)
        self.present = [id in given for id in range(total)]
        self._sizes = [0] * total
        for id, count in (sizes or _counted(records)).items():
            if 0 <= id < total:
                self._sizes[self.owner[id]] += count

    def columns(self) -> list[int]:
        """Ids of the classes that images are compared with: none that is merged into another."""
        return [id for id, owner in enumerate(self.owner) if id == owner and self.present[id]]

    def ids(self) -> list[int]:
        """Ids of the classes that are not merged into another and no junk, ascending."""
        return [id for id in self.columns() if id not in self.judgement.junk]

    def every_name(self) -> list[str]:
        """Names of all classes, merged ones and junk too."""
        return [name for name, present in zip(self.names, self.present, strict=True) if present]

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
            self._vertices.get(id),
            merged,
        )

    def find(self, name: str) -> int:
        """Id of the class with a name; merged classes can still be named."""
        if name and name in self.names:
            matches = [id for id, other in enumerate(self.names) if other == name]
            return next((id for id in matches if self.owner[id] == id), matches[0])
        raise GoalError(
            f"The model has no class {name!r}.{did_you_mean(name, self.every_name())} "
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
        discovered = sum(record.index > 0 for record in self._record_of.values())
        found: list[str] = []
        number = discovered
        while len(found) < count:
            number += 1
            if f"new-{number}" not in self.names:
                found.append(f"new-{number}")
        return found


def _records_by_id(records: Sequence[StageRecord], judgement: Judgement) -> dict[int, StageRecord]:
    """The step that brought each class; of those that decisions brought, the step before them."""
    found = {
        int(key): max(
            (record for record in records if record.num_seen <= int(key)),
            key=lambda record: record.step,
            default=records[0],
        )
        for key in judgement.made
        if records
    }
    for record in records:
        found.update({record.num_known + more: record for more in range(len(record.names))})
    return found


def _counted(records: Sequence[StageRecord]) -> dict[int, int]:
    """Images of each class, as the steps counted them."""
    found: dict[int, int] = {}
    for record in records:
        for key, count in record.sizes.items():
            found[int(key)] = found.get(int(key), 0) + count
    return found


def _require_order(records: Sequence[StageRecord], judgement: Judgement) -> None:
    """Raise an error unless each step's classes go on where those of the step before ended.

    Between steps there may be classes that decisions brought.
    """
    known = 0
    for record in records:
        gap = known <= record.num_known <= judgement.free
        if record.num_known != known and (not gap or not record.step):
            raise GoalError(
                f"Step {record.step} of the model goes on from {record.num_known} classes, but "
                f"there were {known}: one of its steps is damaged. Restore it from a copy."
            )
        known = record.num_seen
    if judgement.free > known + _MOST_MADE:
        raise GoalError("The log names classes that cannot be. Restore the model from a copy.")


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
