"""What was done to a model, action by action: each can be undone on its own, and done again.

Actions are lines that are only ever added to, an undo being a line of its own. What holds is all
of them in order, less what was undone; so taking one back is leaving it out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from goal.common.errors import GoalError
from goal.common.section import Section

FORMAT = 1

Id = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]  # of a class, as a key

Kind = Literal[
    "fit",
    "discover",
    "extend",
    "rename",
    "merge",
    "unmerge",
    "move",
    "reject",
    "confirm",
    "split",
    "junk",
    "teach",
    "undo",
    "redo",
]
TEACHING = frozenset({"move", "reject", "confirm", "split", "junk", "teach"})


class Action(Section):
    """One thing that was done: a line of the log.

    Attributes:
        id: Its number, from 1 on, the same for ever; 0 while it is not in the log.
        time: When (UTC).
        kind: What it was; the first three made a step of the model.
        said: It in words, as what would be taken back: "the renaming of ...".
        step: The step it made.
        seal: The seal of that step.
        ids: Classes it is about: the renamed one, those merged into another, the split one, ...
        name: The new name.
        into: The class that the others were merged into.
        made: Classes it brought, name by id.
        images: Images it is about, by content digest in hexadecimal digits.
        files: What these were called.
        targets: The class of each, where it says one.
        of: The actions that an undo or redo is about.
    """

    id: int = Field(default=0, ge=0)
    time: str = ""
    kind: Kind
    said: str
    step: int | None = Field(default=None, ge=0)
    seal: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")  # it names a folder
    ids: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    name: str | None = None
    into: int | None = Field(default=None, ge=0)
    made: dict[Id, str] = Field(default_factory=dict)
    images: list[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]] = Field(default_factory=list)
    files: list[str] = Field(default_factory=list)
    targets: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    of: list[int] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if any(len(part) not in (0, len(self.images)) for part in (self.files, self.targets)):
            raise ValueError("as many files and classes as images, or none")
        if self.kind == "merge" and self.into in self.ids:
            raise ValueError("a class is merged into itself")
        if self.id and any(not 0 < id < self.id for id in self.of):
            raise ValueError("it is about actions that come later")
        return self

    @property
    def classes(self) -> set[int]:
        """Classes it is about, or brought."""
        into = [] if self.into is None else [self.into]
        return {*self.ids, *into, *self.targets, *map(int, self.made)}

    def concerns(self, first: int) -> bool:
        """Whether it is about a class from id `first` on."""
        return any(id >= first for id in self.classes)


class Judgement(Section):
    """What a person decided about classes, by class id.

    Attributes:
        names: Names that they got.
        merged: The class that each merged one counts as.
        made: Names of the classes that decisions brought.
        junk: Those that are none.
        confirmed: Those that are right.
        free: First id that no decision ever brought, whether it was undone or not.
    """

    format: int = FORMAT
    names: dict[Id, str] = Field(default_factory=dict)
    merged: dict[Id, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    made: dict[Id, str] = Field(default_factory=dict)
    junk: list[int] = Field(default_factory=list)
    confirmed: list[int] = Field(default_factory=list)
    free: int = 0

    def without(self, first: int) -> "Judgement":
        """Forget classes from id `first` on, but for those that decisions brought."""

        def kept(id: int) -> bool:
            return id < first or str(id) in self.made

        return Judgement(
            names={key: name for key, name in self.names.items() if kept(int(key))},
            merged={k: v for k, v in self.merged.items() if kept(int(k)) and kept(v)},
            made=self.made,
            junk=[id for id in self.junk if kept(id)],
            confirmed=[id for id in self.confirmed if kept(id)],
            free=self.free,
        )

    def after(self, action: Action) -> "Judgement":
        """What is decided once an action is done; it counts more than what contradicts it."""
        names, merged = dict(self.names), dict(self.merged)
        for id in action.ids:
            if action.kind == "rename" and action.name is not None:
                names[str(id)] = action.name
            elif action.kind == "merge" and action.into is not None:
                merged[str(id)] = action.into
            elif action.kind == "unmerge":
                merged.pop(str(id), None)
        whole = action.kind == "confirm" and not action.images
        right = set(action.ids) if whole else set()
        bad = set(action.ids) if action.kind == "junk" else set()
        says = action.kind in ("move", "teach", "confirm")
        revived = right | (set(action.targets) if says else set())
        return Judgement(
            names=names,
            merged=merged,
            made={**self.made, **action.made},
            junk=sorted((set(self.junk) | bad) - revived),
            confirmed=sorted((set(self.confirmed) | right) - bad),
        )


@dataclass(frozen=True)
class History:
    """Every line of a model's log."""

    lines: Sequence[Action] = ()

    @cached_property
    def holding(self) -> list[Action]:
        """What was done and not undone, in order."""
        gone: set[int] = set()
        for line in self.lines:
            if line.kind == "undo":
                gone |= set(line.of)
            elif line.kind == "redo":
                gone -= set(line.of)
        return [a for a in self.lines if a.kind not in ("undo", "redo") and a.id not in gone]

    @cached_property
    def judgement(self) -> Judgement:
        """What a person decided about classes."""
        judged = Judgement()
        for action in self.holding:
            judged = judged.after(action)
        ever = [int(key) + 1 for line in self.lines for key in line.made]
        return judged.model_copy(update={"free": max(ever, default=0)})

    @cached_property
    def undone(self) -> list[list[Action]]:
        """What can be done again: what each undo took back, the last one last."""
        stack: list[list[int]] = []
        for line in self.lines:
            if line.kind == "undo":
                stack.append(line.of)
            elif line.kind == "redo":
                stack = stack[:-1]
            else:
                stack = []
        return [self.listed(ids) for ids in stack]

    @property
    def teaching(self) -> list[Action]:
        """The decisions that teach, in order."""
        return [action for action in self.holding if action.kind in TEACHING]

    @property
    def next_id(self) -> int:
        """Number of the next line."""
        return len(self.lines) + 1

    def listed(self, ids: Iterable[int]) -> list[Action]:
        """The lines with some numbers, in order."""
        wanted = set(ids)
        return [line for line in self.lines if line.id in wanted]

    def done(self, *actions: Action) -> "History":
        """With more lines, which are numbered here."""
        numbered = [
            action.model_copy(update={"id": self.next_id + more})
            for more, action in enumerate(actions)
        ]
        return History([*self.lines, *numbered])

    def going_with(self, action: Action, first: int | None) -> list[Action]:
        """An action, and every later one about classes from id `first` on."""
        return [
            other
            for other in self.holding
            if other.id == action.id
            or (other.id > action.id and first is not None and other.concerns(first))
        ]

    def chosen(self, id: int) -> Action:
        """The action of a number, or an error if it cannot be taken back."""
        if not 1 <= id <= len(self.lines):
            raise GoalError(
                f"There is no action {id}: they are numbered 1 to {len(self.lines)}. `goal "
                "history` lists them."
            )
        line = self.lines[id - 1]
        if line.kind in ("undo", "redo"):
            raise GoalError(f"Action {id} is {line.said}. `goal redo` brings back what is undone.")
        if line not in self.holding:
            raise GoalError(f"Action {id} ({line.said}) has been taken back already.")
        return line

    def standing_on(self, action: Action, first: int | None) -> list[Action]:
        """Later actions that make no sense without this one.

        Args:
            action: One that holds.
            first: Classes from this id on were found by the step it made.
        """
        made = {int(key) for key in action.made}
        return [
            other
            for other in self.holding
            if other.id > action.id
            and (
                bool(made & other.classes)
                or (action.step is not None and other.step is not None)
                or (first is not None and other.concerns(first))
            )
        ]
