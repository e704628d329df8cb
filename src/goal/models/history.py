"""What was done to a model, action by action: each can be undone, and done again.

A person's corrections are what their actions add up to, so taking one back is leaving it out.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from goal.common.section import Section

FORMAT = 1

Id = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]  # of a class, as a key


class Action(Section):
    """One thing that was done.

    Attributes:
        kind: What it was; the first three made a step of the model.
        said: It in words, as what would be taken back: "the renaming of ...".
        step: The step it made.
        seal: The seal of that step.
        ids: Classes it is about: the renamed one, those merged into another, the unmerged one.
        name: The new name.
        into: The class that the others were merged into.
    """

    kind: Literal["fit", "discover", "extend", "rename", "merge", "unmerge"]
    said: str
    step: int | None = Field(default=None, ge=0)
    seal: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")  # it names a folder
    ids: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    name: str | None = None
    into: int | None = Field(default=None, ge=0)

    def concerns(self, first: int) -> bool:
        """Whether it is about a class from id `first` on."""
        return any(id >= first for id in [*self.ids, self.into or 0])


class Judgement(Section):
    """What a person decided about classes, by class id."""

    format: int = FORMAT
    names: dict[Id, str] = Field(default_factory=dict)
    merged: dict[Id, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)

    def without(self, first: int) -> "Judgement":
        """Forget classes from id `first` on."""
        names = {key: name for key, name in self.names.items() if int(key) < first}
        merged = {
            key: target
            for key, target in self.merged.items()
            if int(key) < first and target < first
        }
        return Judgement(names=names, merged=merged)

    def after(self, action: Action) -> "Judgement":
        """What is decided once an action is done."""
        names, merged = dict(self.names), dict(self.merged)
        for id in action.ids:
            if action.kind == "rename" and action.name is not None:
                names[str(id)] = action.name
            elif action.kind == "merge" and action.into is not None:
                merged[str(id)] = action.into
            elif action.kind == "unmerge":
                merged.pop(str(id), None)
        return Judgement(names=names, merged=merged)


class History(Judgement):
    """Everything that was done, and what was undone and can be done again.

    `names` and `merged` are what the actions add up to. `undone` holds what single undos took
    back, the last one last.
    """

    actions: list[Action] = Field(default_factory=list)
    undone: list[list[Action]] = Field(default_factory=list)

    @classmethod
    def of(cls, actions: Iterable[Action], undone: Iterable[list[Action]] = ()) -> "History":
        """The history of some actions."""
        listed, judged = list(actions), Judgement()
        for action in listed:
            judged = judged.after(action)
        return cls(names=judged.names, merged=judged.merged, actions=listed, undone=list(undone))

    @property
    def judgement(self) -> Judgement:
        """What a person decided."""
        return Judgement(names=self.names, merged=self.merged)

    def spelt_out(self) -> list[Action]:
        """The actions; for a folder of before they were listed, what amounts to them."""
        if self.actions:
            return self.actions
        renamed = [
            Action(kind="rename", said=f"the name {name}", ids=[int(id)], name=name)
            for id, name in self.names.items()
        ]
        merged = [
            Action(kind="merge", said=f"the merging of class {id}", ids=[int(id)], into=into)
            for id, into in self.merged.items()
        ]
        return renamed + merged

    def done(self, action: Action) -> "History":
        """With one more action; what was undone before is gone for good."""
        return History.of([*self.actions, action])

    def split(self, last: int, first: int | None) -> tuple[list[Action], list[Action]]:
        """Part what stays from what goes with the action at position `last`.

        Args:
            last: The action to take back.
            first: Classes from this id on go with it, and later actions about them, too.
        """
        goes = [
            place == last or (place > last and first is not None and action.concerns(first))
            for place, action in enumerate(self.actions)
        ]
        kept = [action for action, out in zip(self.actions, goes, strict=True) if not out]
        return kept, [action for action, out in zip(self.actions, goes, strict=True) if out]
