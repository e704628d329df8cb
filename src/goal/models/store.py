"""The model folder: finished steps, a person's corrections, and unfinished work.

    stages/000/  stage.json       what the step did and which classes it brought
                 settings.yaml    all settings (first step only)
                 state.pt         the method as it was afterwards
                 predictions.csv, predictions.parquet, skipped.csv, history.jsonl, gallery.json
                 images.parquet   content digest, class and confidence of each image learned
                 near.f32         where its classes lie, for the tree of classes
                 manifest.json    size and checksum of each of these
    stages/001/  the next step, and so on
    decisions.jsonl  every action in order, a line each: steps, names, merges, what teaches, undos
    features/        features of the images learned, for methods that need nothing else
    report.html      all of it as a page, written anew after every change
    thumbnails/      small pictures by content digest, made by `goal review`; may be deleted
    .work/           the step under way, to go on with after an interruption
    .undone/         steps that were undone and can be done again, until something else is done
    .undoing         what an unfinished undo takes back
    .sizes           images of each class under what was decided; can be counted anew

A step is written beside the others and takes its place by one rename; undoing one is a rename,
too. So whatever is killed when, a model holds whole steps only. Each step names the seal of the
one before, and the log names them all: none can be lost or exchanged unseen.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.models.history import FORMAT, Action, History, Judgement
from goal.models.log import LOG, add_to_log, read_log, undoing
from goal.models.records import StageRecord, made_step
from goal.models.standing import require_alone
from goal.storage import files, folders, manifest
from goal.storage.locks import locked

__all__ = ["Judgement", "StageRecord", "Store"]


_SIZES = ".sizes"  # can be counted anew at any time


class Store:
    """A model folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages = folder / "stages"
        self._undoing = folder / ".undoing"
        self._read: tuple[tuple[int, int, int] | None, History] | None = None
        self._parsed: dict[int, tuple[tuple[int, int, int], StageRecord]] = {}

    @property
    def features(self) -> Path:
        """Folder of the features that the model computed."""
        return files.inside(self.folder, "features")

    @property
    def work(self) -> Path:
        """Folder of the step under way."""
        return files.inside(self.folder, ".work")

    @property
    def _undone(self) -> Path:
        return files.inside(self.folder, ".undone")

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
        numbers = sorted(int(path.name) for path in self.stages.iterdir() if path.name.isdecimal())
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

        state = checkpoint.load(self.path(step) / "state.pt")
        if not state:
            raise GoalError(
                f"{file_name(self.folder)} was pulled and came with its last stage only. `goal "
                "redo` brings that back."
            )
        return state

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
        numbers = (plan.get("step"), plan.get("count", 0))
        return plan if all(type(number) is int for number in numbers) else None

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
        path = self.folder / LOG
        now = path.stat() if path.exists() else None
        same = None if now is None else (now.st_ino, now.st_size, now.st_mtime_ns)
        if same is None or self._read is None or self._read[0] != same:
            self._read = (same, read_log(self.folder))
        return self._read[1]

    def judgement(self) -> Judgement:
        """What a person decided about classes."""
        return self.history().judgement

    def decided(self) -> str:
        """What tells the images' classes as they are now: the last step, and what teaches."""
        held = [action.id for action in self.history().teaching]
        return f"{self.seal(self._count() - 1)} {held}"

    def sizes(self) -> dict[int, int] | None:
        """Images of each class under what was decided; None if the steps' own counts hold."""
        if not self.history().teaching or not (self.folder / _SIZES).is_file():
            return None
        try:
            content = files.read_json(self.folder / _SIZES)
            counted = {int(key): int(count) for key, count in content["sizes"].items()}
        except (GoalError, KeyError, ValueError, TypeError, AttributeError):
            return None
        return counted if content.get("decided") == self.decided() else None

    def note_sizes(self, sizes: Mapping[int, int]) -> None:
        """Keep the number of images of each class, until something else is decided."""
        plain = {str(id): count for id, count in sorted(sizes.items())}
        files.write_json(self.folder / _SIZES, {"decided": self.decided(), "sizes": plain})

    def act(self, action: Action) -> Action:
        """Note an action; what was undone before cannot be done again from here on."""
        noted = self._note(action)
        self._drop_undone()
        return noted

    def undo(self, stage: bool = False, id: int | None = None) -> list[Action]:
        """Take back the last action, one by its number, or the last step with what is about it.

        An undo that was cut short is finished instead, however often the command is given.

        Args:
            stage: The last step, and every later action about the classes it found.
            id: The action, which no later one may stand on.

        Returns:
            What was taken back; nothing if only the first step is left.
        """
        history = self.history()
        asked = {"stage": stage, "id": id}
        if self._undoing.exists():
            content = files.read_json(self._undoing)
            if content.get("lines") != len(history.lines) and content.get("asked") == asked:
                return history.undone[-1] if history.undone else []  # all but its end was done
        goes = self._going(history, stage, id)
        if any(action.step == 0 for action in goes):
            return []
        files.write_json(self._undoing, {"lines": len(history.lines), "asked": asked})
        for action in goes:
            if action.step is not None:
                self._set_aside(action.step, str(action.seal))
        self._note_undone("undo", goes)
        return goes

    def _going(self, history: History, stage: bool, id: int | None) -> list[Action]:
        """The actions that an undo takes back."""
        if id is None:
            steps = [action for action in history.holding if action.step is not None]
            action = steps[-1] if stage else history.holding[-1]
            first = None if action.step is None else self._record(action.step).num_known
            return history.going_with(action, first)
        action = history.chosen(id)
        if action.step == 0:
            return [action]
        first = None if action.step is None else self._record(action.step).num_known
        require_alone(history, action, first, self.records())
        return [action]

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
        if actions:
            self._note_undone("redo", actions)
        return actions

    def _set_aside(self, step: int, seal: str) -> None:
        self._undone.mkdir(exist_ok=True)
        self.path(step).replace(self._undone / seal)
        files.sync_folder(self.stages)

    def _reconcile(self) -> None:
        """Let the log follow the steps, which a killed command may have left apart."""
        history = self.history()
        present = {self.seal(record.step): record for record in self.records()}
        again = history.undone[-1] if history.undone else []
        if any(action.seal in present for action in again if action.step is not None):
            self._note_undone("redo", again)
            return
        holding = history.holding
        gone = [a for a in holding if a.step is not None and a.seal not in present]
        listed = {action.seal for action in holding}
        fresh = [made_step(record, seal) for seal, record in present.items() if seal not in listed]
        if gone:  # an undo was cut short after its rename: what it took away is set aside
            first = min(self._set_aside_record(action).num_known for action in gone)
            self._note_undone("undo", history.going_with(gone[0], first))
        elif len(fresh) == len(present) and not (self.folder / LOG).exists():
            add_to_log(
                self.folder, History(), *fresh, *history.lines
            )  # of before steps were listed
        elif fresh:
            self._note(*fresh)
            self._drop_undone()

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

    def _note_undone(self, kind: Literal["undo", "redo"], actions: list[Action]) -> None:
        ids = [action.id for action in actions]
        self._note(Action(kind=kind, said=undoing(self.history(), ids, kind == "redo"), of=ids))

    def _note(self, *actions: Action) -> Action:
        timed = [a if a.time else a.model_copy(update={"time": _now()}) for a in actions]
        return add_to_log(self.folder, self.history(), *timed).lines[-1]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _seal(folder: Path) -> str:
    return hashlib.sha256(files.read_bytes(folder / manifest.MANIFEST)).hexdigest()
