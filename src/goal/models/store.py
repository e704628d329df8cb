"""The model folder: finished steps, a person's corrections, and unfinished work.

    stages/000/  stage.json       what the step did and which classes it brought
                 settings.yaml    all settings (first step only)
                 state.pt         the method as it was afterwards
                 predictions.csv, predictions.parquet, skipped.csv, history.jsonl, gallery.json
                 manifest.json    size and checksum of each of these
    stages/001/  the next step, and so on
    judgement.json   a person's corrections: renamed and merged classes
    report.html      all of it as a page, written anew after every change
    .work/           the step under way, to go on with after an interruption

A step is written beside the others and takes its place by one rename; undoing one is a rename,
too. So whatever is killed when, a model holds whole steps only.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.section import Section
from goal.storage import files, manifest
from goal.storage.locks import locked
from goal.storage.manifest import Findings
from goal.storage.seal import page_holds, read_sealed, write_sealed

FORMAT = 1
JUDGEMENT = "judgement.json"
PAGE = "report.html"


class StageRecord(Section):
    """A finished step, as in its ``stage.json``.

    `kind` says what it was: ``fit`` with labels, ``discover`` without, or ``extend``, which only
    adds vertices. `index` counts fits and discoveries; `names` and `vertices` belong to the
    classes it brought, whose ids go on from `num_known`; `sizes` counts its images by class id;
    `capacity` and `free` count vertices, where the method has any; `key` identifies its input.
    """

    format: int = FORMAT
    kind: Literal["fit", "discover", "extend"]
    step: int = Field(ge=0)
    index: int = Field(ge=0)
    created: str
    version: str
    key: str
    requested: int | str | None = None
    num_known: int = Field(ge=0)
    names: list[str] = Field(default_factory=list)
    vertices: list[int | None] = Field(default_factory=list)
    sizes: dict[str, int] = Field(default_factory=dict)
    images: int = Field(default=0, ge=0)
    skipped: int = Field(default=0, ge=0)
    capacity: int | None = None
    free: int | None = None
    trunk: str

    @property
    def num_seen(self) -> int:
        """Classes after the step."""
        return self.num_known + len(self.names)


class Judgement(Section):
    """What a person decided about classes, by class id."""

    format: int = FORMAT
    names: dict[str, str] = Field(default_factory=dict)
    merged: dict[str, int] = Field(default_factory=dict)

    def without(self, first: int) -> "Judgement":
        """Forget classes from id `first` on."""
        names = {key: name for key, name in self.names.items() if int(key) < first}
        merged = {
            key: target
            for key, target in self.merged.items()
            if int(key) < first and target < first
        }
        return Judgement(names=names, merged=merged)


class Store:
    """A model folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages = folder / "stages"
        self.work = folder / ".work"
        self._undone = folder / ".undone"
        self._parsed: dict[int, tuple[tuple[int, int, int], StageRecord]] = {}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; clear away what a killed command left."""
        with locked(self.folder):
            if self._undone.exists():
                shutil.rmtree(self._undone)
            plan = self.plan()
            if self.work.exists() and (plan is None or plan["step"] < self._count()):
                shutil.rmtree(self.work)
            if (self.folder / JUDGEMENT).exists():
                self._prune()
            yield

    # -- steps ------------------------------------------------------------------------------------

    def _count(self) -> int:
        return len(list(self.stages.glob("[0-9][0-9][0-9]"))) if self.stages.is_dir() else 0

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
        ours = {".lock", ".work", "stages"}
        others = sorted(path.name for path in self.folder.iterdir() if path.name not in ours)
        if others:
            raise GoalError(
                f"{file_name(self.folder)} is not empty and holds no model (there is "
                f"{visible(others[0])}). Choose another folder."
            )

    def path(self, step: int) -> Path:
        """Folder of a finished step."""
        return self.stages / f"{step:03d}"

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
            self._parsed[step] = (same, self._read_record(path))
        return self._parsed[step][1]

    def _read_record(self, path: Path) -> StageRecord:
        content = files.read_json(path)
        files.require_format(content.get("format"), FORMAT, path)
        return StageRecord.parse(content, f"content of {file_name(path)}")

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
            shutil.rmtree(self.work)

    def commit(self, record: StageRecord, contents: Mapping[str, bytes], state: Any) -> None:
        """Write a step beside the others, then let it take its place."""
        from goal.storage import checkpoint

        draft = self.work / "stage"
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(parents=True)
        for name, content in contents.items():
            files.write_bytes(draft / name, content)
        checkpoint.save(draft / "state.pt", state)
        files.write_json(draft / "stage.json", record.model_dump(mode="json"))
        manifest.seal(draft, [path.name for path in draft.iterdir()])
        self.stages.mkdir(exist_ok=True)
        draft.replace(self.path(record.step))
        files.sync_folder(self.stages)
        shutil.rmtree(self.work)

    def undo(self) -> None:
        """Take back the last step, and what was judged about its classes."""
        self.path(self._count() - 1).replace(self._undone)
        files.sync_folder(self.stages)
        self._prune()
        shutil.rmtree(self._undone)

    # -- corrections ------------------------------------------------------------------------------

    def judgement(self) -> Judgement:
        """Read renamed and merged classes."""
        path = self.folder / JUDGEMENT
        if not path.exists():
            return Judgement()
        return Judgement.parse(read_sealed(path, FORMAT, _RESTORE), f"content of {file_name(path)}")

    def judge(self, judgement: Judgement) -> None:
        """Write renamed and merged classes."""
        write_sealed(self.folder / JUDGEMENT, judgement.model_dump(mode="json"))

    def _prune(self) -> None:
        records, judgement = self.records(), self.judgement()
        kept = judgement.without(records[-1].num_seen if records else 0)
        if kept != judgement:
            self.judge(kept)


_RESTORE = "Restore it from a copy of the model; or delete it, and classes have their first names."


def verify_all(folder: Path, found: Findings) -> None:
    """Check what lies beside the steps of every model in or below `folder`."""
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
