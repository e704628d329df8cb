"""The log of a model: every action a line of JSON, each with a check of all lines up to it.

    {"format": 1, "check": "..."}
    {"id": 1, "time": "...", "kind": "fit", "said": "the labelled stage", ..., "check": "..."}

Lines are only ever added. The file is replaced as a whole, so that no line is ever half there.
Folders of before it have `judgement.json`, which is read as a log and becomes one by the first
change.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.models.history import FORMAT, Action, History, Judgement
from goal.storage import files
from goal.storage.seal import read_sealed

LOG = "decisions.jsonl"
JUDGEMENT = "judgement.json"
RESTORE = "Restore it from a copy of the model."

_HEAD = {"format": FORMAT}
_CHECK = ', "check": "'


def read_log(folder: Path) -> History:
    """Every action of the model in a folder; none if nothing was ever noted."""
    path = folder / LOG
    if path.exists():
        return _parsed(files.read_text(path), path)
    former = folder / JUDGEMENT
    if not former.exists():
        return History()
    content = read_sealed(former, FORMAT, RESTORE)
    return _Former.parse(content, f"content of {file_name(former)}").as_history()


def add_to_log(folder: Path, history: History, *actions: Action) -> History:
    """Add lines to the log of a model, which says `history` so far; return what it says now."""
    path = folder / LOG
    after = history.done(*actions)
    text = files.read_text(path) if path.exists() else _written("", [_HEAD])
    fresh = after.lines[text.count("\n") - 1 :]  # of a folder of before the log: all of them
    text = _written(text, [_plain(action) for action in fresh])
    if len(text.encode()) > files.MOST_TEXT:
        raise GoalError(
            f"{file_name(path)} would be larger than {files.MOST_TEXT:,} bytes. Name fewer images "
            "at a time, or fit a new model to the classes as they are now."
        )
    files.write_text(path, text)
    (folder / JUDGEMENT).unlink(missing_ok=True)
    return after


def _plain(action: Action) -> dict[str, Any]:
    """A line's content, without what it does not use."""
    return action.model_dump(mode="json", exclude_defaults=True)


def _written(text: str, contents: Iterable[Mapping[str, Any]]) -> str:
    """A log's text with more lines."""
    check = text.rpartition(_CHECK)[2].partition('"')[0]
    for content in contents:
        body = json.dumps(content)
        check = _check(check, body)
        text += f'{body[:-1]}{_CHECK}{check}"}}\n'
    return text


def _check(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}{body}".encode()).hexdigest()


def _parsed(text: str, path: Path) -> History:
    """The actions of a log, every byte of it checked."""
    contents = files.json_lines(text, path)
    files.require_format(contents[0].get("format") if contents else None, FORMAT, path)
    before = ""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        body, _, rest = line.rpartition(_CHECK)
        before = _check(before, f"{body}}}")
        if rest != f'{before}"}}':
            raise GoalError(f"{path} is damaged: the check of line {number} is wrong. {RESTORE}")
    if not text.endswith("\n"):
        raise GoalError(f"{path} is damaged: its end is missing. {RESTORE}")
    where = f"content of {file_name(path)}"
    plain = [{k: v for k, v in content.items() if k != "check"} for content in contents[1:]]
    lines = [Action.parse(content, where) for content in plain]
    if [line.id for line in lines] != list(range(1, len(lines) + 1)):
        raise GoalError(f"{path} is damaged: its lines are not numbered in order. {RESTORE}")
    return History(lines)


class _Former(Judgement):
    """What ``judgement.json`` held: actions, and what undos took back, the last one last."""

    actions: list[Action] = Field(default_factory=list)
    undone: list[list[Action]] = Field(default_factory=list)

    def as_history(self) -> History:
        """The same as a log: what was undone comes after all that holds, and is undone there."""
        listed = self.actions or self._spelt_out()
        history = History().done(*listed)
        groups = []
        for group in reversed(self.undone):
            first = history.next_id
            history = history.done(*group)
            groups.append(list(range(first, history.next_id)))
        for ids in reversed(groups):
            history = history.done(Action(kind="undo", said=undoing(history, ids), of=ids))
        return history

    def _spelt_out(self) -> list[Action]:
        """The actions that amount to what is decided, of before they were listed."""
        renamed = [
            Action(kind="rename", said=f"the name {name}", ids=[int(id)], name=name)
            for id, name in self.names.items()
        ]
        merged = [
            Action(kind="merge", said=f"the merging of class {id}", ids=[int(id)], into=into)
            for id, into in self.merged.items()
        ]
        return renamed + merged


def undoing(history: History, ids: list[int], again: bool = False) -> str:
    """An undo, or a redo, in words."""
    what = ", ".join(action.said for action in history.listed(ids))
    return f"the {'bringing' if again else 'taking'} back of {what}"
