"""A model folder from a stranger: nothing outside it is read, moved or written."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.models.checking import verify_all
from goal.models.classes import Roster
from goal.models.folder import ModelFolder
from goal.models.log import LOG, _written
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.storage import manifest
from goal.storage.files import read_jsonl
from goal.storage.manifest import Findings
from tests.models.test_store import grown, listing, record


def rewritten(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the log and check its lines again, as whoever can write there can."""
    lines = read_jsonl(folder / LOG)
    change(lines)
    text = _written("", [{k: v for k, v in line.items() if k != "check"} for line in lines])
    (folder / LOG).write_text(text)


def restated(store: Store, step: int, **facts: object) -> None:
    """Change what a step says of itself and seal it again."""
    path = store.path(step) / "stage.json"
    content = {**json.loads(path.read_text()), **facts}
    path.write_text(json.dumps(content))
    names = [other.name for other in store.path(step).iterdir() if other.name != manifest.MANIFEST]
    manifest.seal(store.path(step), names, None)


def test_a_step_to_bring_back_is_named_by_a_seal_and_never_by_a_path(tmp_path: Path) -> None:
    store = grown(tmp_path / "model", 2)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").mkdir()
    with store.writing():
        store.undo(stage=True)

    def elsewhere(lines: list[dict[str, Any]]) -> None:
        lines[2]["seal"] = "../../home/thesis"

    rewritten(tmp_path / "model", elsewhere)
    for command in (ModelFolder(tmp_path / "model").redo, ModelFolder(tmp_path / "model").undo):
        with pytest.raises(GoalError, match="seal"):
            command()
    assert (tmp_path / "home" / "thesis").is_dir()


@pytest.mark.parametrize("name", [".work", ".undone", "features"])
def test_a_linked_folder_of_a_model_is_refused(name: str, tmp_path: Path) -> None:
    store = grown(tmp_path / "model", 2)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "plan.json").write_text('{"step": 2, "key": "extend 9"}')
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    before = listing(tmp_path / "home")
    (tmp_path / "model" / name).symlink_to(tmp_path / "home")
    attempts: dict[str, Callable[[], object]] = {
        ".work": store.drop_work,
        ".undone": lambda: store.undo(stage=True),
        "features": lambda: store.features,
    }
    with pytest.raises(GoalError, match="leads out of its folder"):
        attempts[name]()
    assert listing(tmp_path / "home") == before


def test_a_pipe_for_a_manifest_or_a_page_ends_nothing(tmp_path: Path) -> None:
    store = grown(tmp_path, 1)
    os.mkfifo(tmp_path / "report.html")
    (store.path(0) / "manifest.json").unlink()
    os.mkfifo(store.path(0) / "manifest.json")
    with pytest.raises(GoalError, match="pipe or device"):
        store.seal(0)
    found = Findings()
    verify_all(tmp_path, found)
    manifest.verify_all(tmp_path, found)
    assert any("report.html is a pipe" in problem for problem in found.problems)
    assert any("manifest.json" in problem for problem in found.problems)


@pytest.mark.parametrize(
    "facts",
    [{"vertices": [1]}, {"sizes": {"p": 1}}, {"sizes": {"9": 1}}, {"sizes": {"0": -1}}],
    ids=str,
)
def test_a_record_that_does_not_fit_together_is_refused(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    store = grown(tmp_path, 1)
    restated(store, 0, **facts)
    with pytest.raises(GoalError, match=r"stage\.json"):
        Store(tmp_path).records()


def test_classes_go_on_where_the_step_before_ended() -> None:
    with pytest.raises(GoalError, match="Step 1 of the model goes on from 5 classes"):
        Roster([record(0), record(1, num_known=5, sizes={})], Store(Path()).judgement())


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "rename", "ids": [-1]},
        {"kind": "merge", "ids": [0], "into": -1},
        {"kind": "merge", "ids": [0], "into": 0},
        {"kind": "teach", "made": {"x": "cat"}},
        {"kind": "teach", "made": {"999999999": "cat"}},
        {"kind": "move", "images": ["../../home"], "targets": [0]},
        {"kind": "undo", "of": [9]},
        {"kind": "undo", "of": [2]},
    ],
    ids=str,
)
def test_damaged_corrections_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    grown(tmp_path, 1)
    rewritten(tmp_path, lambda lines: lines.append({"id": 2, "said": "", **change}))
    with pytest.raises(GoalError, match=r"decisions\.jsonl|is damaged|cannot be"):
        _ = ModelFolder(tmp_path).roster


def test_a_folder_that_is_no_number_is_no_step(tmp_path: Path) -> None:
    grown(tmp_path, 1)
    (tmp_path / "stages" / "²").mkdir()
    assert [found.step for found in Store(tmp_path).records()] == [0]


def test_an_unfinished_step_without_numbers_is_none(tmp_path: Path) -> None:
    store = grown(tmp_path, 1)
    store.work.mkdir()
    (store.work / "plan.json").write_text('{"step": 1, "key": "x", "count": "many"}')
    assert store.plan() is None


def test_records_without_vertices_show_none(tmp_path: Path) -> None:
    found: StageRecord = record(0, vertices=[])
    assert [known.vertex for known in Roster([found], Store(tmp_path).judgement()).classes()] == [
        None,
        None,
    ]
