"""The model folder: finished steps, a person's corrections, and unfinished work.

    stages/000/  stage.json       what the step did and which classes it brought
                 settings.yaml    all settings (first step only)
                 state.pt         the method as it was afterwards
                 predictions.csv, predictions.parquet, skipped.csv, history.jsonl, gallery.json
                 images.parquet   content digest, class and confidence of each image learned
                 near.f32         where its classes lie, for the tree of classes
                 manifest.json    size and checksum of each of these
    stages/001/  the next step, and so on
    judgement.json   every action in order, and the corrections (names, merges) they add up to
    report.html      all of it as a page, written anew after every change
    .work/           the step under way, to go on with after an interruption
    .undone/         steps that were undone and can be done again, until something else is done
    .undoing         what an unfinished undo takes back

A step is written beside the others and takes its place by one rename; undoing one is a rename,
too. So whatever is killed when, a model holds whole steps only. Each step names the seal of the
one before, and the list of actions names them all: none can be lost or exchanged unseen.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.models.history import FORMAT, Action, History, Judgement
from goal.models.records import JUDGEMENT, PAGE, StageRecord, made_step
from goal.storage import files, folders, manifest
from goal.storage.locks import locked
from goal.storage.manifest import Findings
from goal.storage.seal import page_holds, read_sealed, write_sealed

__all__ = ["Judgement", "StageRecord", "Store", "verify_all"]


class Store:
    """A model folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages = folder / "stages"
        self.features = folder / "features"
        self.work = folder / ".work"
        self._undone = folder / ".undone"
        self._undoing = folder / ".undoing"
        self._parsed: dict[int, tuple[tuple[int, int, int], StageRecord]] = {}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; finish what a killed command left half done."""
        with locked(self.folder):
            plan = self.plan()
            if self.work.exists() and (plan is None or plan["step"] < self._count()):
                folders.remove(self.folder, self.work.name)
            if self._count():
                self._reconcile()
            yield

    # -- steps ------------------------------------------------------------------------------------

    def _count(self) -> int:
        files.inside(self.folder, "stages")
        if not self.stages.is_dir():
            return 0
        numbers = sorted(int(path.name) for path in self.stages.iterdir() if path.name.isdigit())
        missing = [step for step in range(len(numbers)) if step not in numbers]
        if missing:
            raise GoalError(
                f"{file_name(self.path(missing[0]))} is missing: later steps build on it. Restore "
                "it from a copy of the model."
            )
        return len(numbers)

    def records(self) -> list[StageRecord]:
        """Finished steps, in order; none for a folder that holds no model yet."""
        return [self._record(step) for step in range(self._count())]

    def require(self) -> list[StageRecord]:
        """Finished steps, or an error if there is no model."""
        found = self.records()
        if not found:
            raise GoalError(
                f"{file_name(self.folder)} holds no model. Make one: "
                "`goal fit LABELLED_DIR --model FOLDER`."
            )
        return found

    def require_empty(self) -> None:
        """Raise an error if the folder holds anything but the beginning of a model."""
        ours = {".lock", ".work", "stages", "features"}
        others = sorted(path.name for path in self.folder.iterdir() if path.name not in ours)
        if others:
            raise GoalError(
                f"{file_name(self.folder)} is not empty and holds no model (there is "
                f"{visible(others[0])}). Choose another folder."
            )

    def path(self, step: int) -> Path:
        """Folder of a finished step."""
        return files.inside(self.folder, Path("stages") / f"{step:03d}")

    def seal(self, step: int) -> str:
        """What tells a step from any other: the checksum of its manifest, which has all others."""
        return _seal(self.path(step))

    def require_intact(self, step: int, name: str) -> None:
        """Raise an error if a file of a step is not as it was written."""
        path = self.path(step) / name
        listed = manifest.read(self.path(step))
        if listed is not None and manifest.facts(path) != listed.get(name):
            raise GoalError(
                f"{file_name(path)} has changed since it was written. Restore it from a copy of "
                "the model; `goal verify` lists all such files."
            )

    def state(self, step: int) -> dict[str, Any]:
        """What a step's ``state.pt`` holds."""
        from goal.storage import checkpoint  # torch: only for those who compute

        return checkpoint.load(self.path(step) / "state.pt")

    def _record(self, step: int) -> StageRecord:
        """A step's record, parsed once as long as its file is the same."""
        path = self.path(step) / "stage.json"
        try:
            now = path.stat()
        except OSError as error:
            raise GoalError(f"Cannot read {file_name(path)}: {error.strerror}.") from error
        same = (now.st_ino, now.st_size, now.st_mtime_ns)
        if step not in self._parsed or self._parsed[step][0] != same:
            self._parsed[step] = (same, self._read_record(path, step))
        return self._parsed[step][1]

    def _read_record(self, path: Path, step: int) -> StageRecord:
        content = files.read_json(path)
        files.require_format(content.get("format"), FORMAT, path)
        record = StageRecord.parse(content, f"content of {file_name(path)}")
        if record.step != step:
            raise GoalError(
                f"{file_name(path)} is that of step {record.step}, in the place of another. "
                "Restore the folder from a copy of the model."
            )
        return record

    # -- unfinished work --------------------------------------------------------------------------

    def plan(self) -> dict[str, Any] | None:
        """What the unfinished step set out to do, None if there is none or it cannot be read."""
        try:
            plan = files.read_json(self.work / "plan.json")
        except GoalError:
            return None
        return plan if isinstance(plan.get("step"), int) else None

    def begin(self, plan: Mapping[str, Any]) -> bool:
        """Start a step, or go on with the very same one; return whether there is one to go on."""
        if self.plan() == plan:
            return True
        self.drop_work()
        self.work.mkdir(parents=True)
        files.write_json(self.work / "plan.json", plan)
        return False

    def drop_work(self) -> None:
        """Forget the unfinished step."""
        if self.work.exists():
            folders.remove(self.folder, self.work.name)

    def commit(self, record: StageRecord, contents: Mapping[str, bytes], state: Any) -> None:
        """Write a step beside the others, then let it take its place."""
        from goal.storage import checkpoint

        draft = self.work / "stage"
        folders.remove(self.folder, draft.relative_to(self.folder).as_posix())
        draft.mkdir(parents=True)
        for name, content in contents.items():
            files.write_bytes(draft / name, content)
        checkpoint.save(draft / "state.pt", state)
        before = self.seal(record.step - 1) if record.step else ""
        about = record.model_copy(update={"before": before})
        files.write_json(draft / "stage.json", about.model_dump(mode="json"))
        manifest.seal(draft, [path.name for path in draft.iterdir()])
        self.stages.mkdir(exist_ok=True)
        draft.replace(self.path(record.step))
        files.sync_folder(self.stages)
        folders.remove(self.folder, self.work.name)
        self._reconcile()

    # -- actions ----------------------------------------------------------------------------------

    def history(self) -> History:
        """Everything that was done."""
        path = self.folder / JUDGEMENT
        if not path.exists():
            return History()
        return History.parse(read_sealed(path, FORMAT, _RESTORE), f"content of {file_name(path)}")

    def judgement(self) -> Judgement:
        """Renamed and merged classes."""
        return self.history().judgement

    def act(self, action: Action) -> None:
        """Note an action; what was undone before cannot be done again from here on."""
        self._write(self.history().done(action))
        self._drop_undone()

    def undo(self, stage: bool = False) -> list[Action]:
        """Take back the last action, or the last step with what was decided about its classes.

        An undo that was cut short is finished instead, however often the command is given.

        Returns:
            What was taken back; nothing if only the first step is left.
        """
        history = self.history()
        if self._undoing.exists():
            content = files.read_json(self._undoing)
            if content.get("history") != len(history.actions):  # all but the end of it was done
                return history.undone[-1] if history.undone else []
        steps = [place for place, action in enumerate(history.actions) if action.step is not None]
        last = steps[-1] if stage else len(history.actions) - 1
        action = history.actions[last]
        if action.step == 0:
            return []
        first = None if action.step is None else self._record(action.step).num_known
        kept, goes = history.split(last, first)
        files.write_json(self._undoing, {"history": len(history.actions)})
        if action.step is not None:
            self._set_aside(action.step, str(action.seal))
        self._write(History.of(kept, [*history.undone, goes]))
        return goes

    def undone(self) -> None:
        """An undo has been finished to its very end."""
        self._undoing.unlink(missing_ok=True)

    def redo(self) -> list[Action]:
        """Do again what the last undo took back; nothing if there is nothing."""
        history = self.history()
        actions = history.undone[-1] if history.undone else []
        for action in actions:
            if action.step is not None:
                aside = self._undone / str(action.seal)
                if not aside.is_dir():  # a copy of the model, which has no undone steps
                    return []
                aside.replace(self.path(action.step))
                files.sync_folder(self.stages)
        if not actions:
            return []
        self._write(History.of([*history.actions, *actions], history.undone[:-1]))
        return actions

    def _set_aside(self, step: int, seal: str) -> None:
        self._undone.mkdir(exist_ok=True)
        self.path(step).replace(self._undone / seal)
        files.sync_folder(self.stages)

    def _reconcile(self) -> None:
        """Let the list of actions follow the steps, which a killed command may have left apart."""
        history = self.history()
        present = {self.seal(record.step): record for record in self.records()}
        if (redone := self._half_redone(history, present)) is not None:
            self._write(redone)
            return
        actions = history.spelt_out()
        listed = {action.seal for action in actions}
        gone = [a for a in actions if a.step is not None and a.seal not in present]
        fresh = [made_step(record, seal) for seal, record in present.items() if seal not in listed]
        if gone:  # an undo was cut short after its rename: what it took away is set aside
            first = min(self._set_aside_record(action).num_known for action in gone)
            place = actions.index(gone[0])
            kept, goes = History.of(actions).split(place, first)
            self._write(History.of(kept, [*history.undone, goes]))
        elif fresh:
            ahead = [] if history.actions else fresh  # of a folder of before they were listed
            behind = fresh if history.actions else []
            self._write(History.of([*ahead, *actions, *behind]))
            self._drop_undone()

    def _half_redone(self, history: History, present: Mapping[str, StageRecord]) -> History | None:
        """The history with its last undo done again, if the step of it is back in its place."""
        again = history.undone[-1] if history.undone else []
        if not any(action.seal in present for action in again if action.step is not None):
            return None
        return History.of([*history.actions, *again], history.undone[:-1])

    def _set_aside_record(self, action: Action) -> StageRecord:
        folder = self._undone / str(action.seal)
        if not folder.is_dir() or action.step is None:
            raise GoalError(
                f"{file_name(self.path(action.step or 0))} is missing or has been exchanged. "
                "Restore it from a copy of the model."
            )
        return self._read_record(folder / "stage.json", action.step)

    def _drop_undone(self) -> None:
        if self._undone.exists():
            folders.remove(self.folder, self._undone.name)

    def _write(self, history: History) -> None:
        write_sealed(self.folder / JUDGEMENT, history.model_dump(mode="json"))


_RESTORE = "Restore it from a copy of the model; or delete it, and classes have their first names."


def _seal(folder: Path) -> str:
    path = folder / manifest.MANIFEST
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise GoalError(f"Cannot read {file_name(path)}: {error.strerror}.") from error


def verify_all(folder: Path, found: Findings) -> None:
    """Check the order of the steps, and what lies beside them, of every model below `folder`."""
    for path in sorted(folder.rglob(JUDGEMENT)):
        found.checked.append(path)
        try:
            read_sealed(path, FORMAT, "Restore it from a copy of the model.")
        except GoalError as error:
            found.problems.append(str(error))
    for path in sorted(folder.rglob(PAGE)):
        if not any(path.parent.glob("stages/*/stage.json")) or path in found.checked:
            continue
        found.checked.append(path)
        if not page_holds(path.read_bytes()):
            found.problems.append(
                f"{path} has changed since it was written. `goal show` writes it anew."
            )
    judged = {path.parent for path in folder.rglob(JUDGEMENT)}
    for model in sorted(judged | {path.parent for path in folder.rglob("stages")}):
        found.problems += [
            problem for problem in _order_problems(Store(model)) if problem not in found.problems
        ]


def _order_problems(store: Store) -> list[str]:
    """What is wrong with the order of a model's steps, or with the list of its actions."""
    if store.stages.is_symlink():
        return [f"{store.stages} is a link: a model's files lie in its folder."]
    try:
        records = store.records()
        seals = [store.seal(record.step) for record in records]
    except (GoalError, OSError) as error:
        return [str(error)]
    try:
        history = store.history()
        for record in records:
            manifest.read(store.path(record.step))
    except GoalError:  # a damaged list or manifest: its own check has named it
        return []
    problems = [
        f"{store.path(record.step)} does not follow {store.path(record.step - 1)}: one of them "
        "has been exchanged. Restore the model from a copy."
        for record in records[1:]
        if record.before is not None and record.before != seals[record.step - 1]
    ]
    path = store.folder / JUDGEMENT
    if not path.exists() and any(record.before is not None for record in records):
        problems.append(f"{path} is missing: it holds names and merges. Restore it from a copy.")
    set_aside = store.folder / ".undone"
    for action in history.actions:
        aside = (set_aside / str(action.seal)).exists()  # an undo cut short: the next one ends it
        if action.step is not None and action.seal not in seals and not aside:
            problems.append(
                f"{store.path(action.step)} is missing or has been exchanged. Restore the model "
                "from a copy."
            )
    return problems
