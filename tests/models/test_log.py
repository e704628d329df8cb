"""The log of decisions: only ever added to, checked line by line, carried over from before it."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.models.folder import ModelFolder
from goal.models.history import Action, History, Judgement
from goal.models.log import LOG, add_to_log, read_log
from goal.storage.seal import write_sealed
from tests.models.test_store import grown, merge, rename

FIXTURE = Path(__file__).parents[1] / "fixtures" / "format-1" / "model"
DRAWN = {"gallery.json": b'{"classes": {}, "thumbnails": {}}'}


def test_lines_are_only_added_and_each_is_checked_against_all_before(tmp_path: Path) -> None:
    history = History()
    texts = []
    for name in ("lion", "wölf", 'a", "check": "b'):
        history = add_to_log(tmp_path, history, rename(0, name))
        texts.append((tmp_path / LOG).read_bytes())
    assert texts[2].startswith(texts[1]) and texts[1].startswith(texts[0])
    check = ""
    for line in texts[2].decode().splitlines():
        content = json.loads(line)
        found = content.pop("check")
        check = hashlib.sha256((check + json.dumps(content)).encode()).hexdigest()
        assert found == check
    assert read_log(tmp_path) == history
    assert [line.id for line in history.lines] == [1, 2, 3]


def test_every_changed_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    add_to_log(tmp_path, History(), rename(0, "lion"), merge(1, 0))
    path = tmp_path / LOG
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(GoalError, match=r"decisions\.jsonl"):
            read_log(tmp_path)
        if place not in ends:
            path.write_bytes(whole[:place])
            with pytest.raises(GoalError, match=r"decisions\.jsonl"):
                read_log(tmp_path)
    lines = whole.splitlines(keepends=True)
    for other in ([0, 2], [0, 2, 1], [0, 1, 1, 2]):
        path.write_bytes(b"".join(lines[at] for at in other))
        with pytest.raises(GoalError, match="is wrong"):
            read_log(tmp_path)


def test_a_newer_log_asks_for_a_newer_goal(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text('{"format": 2, "check": ""}\n')
    with pytest.raises(GoalError, match=r"format 2; this version reads format 1.*Update"):
        read_log(tmp_path)


def test_a_log_too_large_to_read_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = add_to_log(tmp_path, History(), rename(0, "lion"))
    monkeypatch.setattr("goal.storage.files.MOST_TEXT", 1000)
    many = Action(kind="move", said="many", images=["0" * 32] * 40, targets=[0] * 40)
    with pytest.raises(GoalError, match="fewer images"):
        add_to_log(tmp_path, history, many)
    assert read_log(tmp_path) == history


def test_what_undos_and_redos_add_up_to() -> None:
    """Against the plain rule: an action holds unless its last undo is later than its last redo."""
    history = History().done(rename(0, "a"), rename(1, "b"), merge(2, 1), rename(0, "c"))
    history = history.done(
        Action(kind="undo", said="", of=[4]), Action(kind="undo", said="", of=[2])
    )
    assert [action.id for action in history.holding] == [1, 3]
    assert [[action.id for action in group] for group in history.undone] == [[4], [2]]
    assert history.judgement == Judgement(names={"0": "a"}, merged={"2": 1})
    history = history.done(Action(kind="redo", said="", of=[2]))
    assert [action.id for action in history.holding] == [1, 2, 3]
    assert [[action.id for action in group] for group in history.undone] == [[4]]
    history = history.done(rename(3, "d"))
    assert history.undone == [] and [action.id for action in history.holding] == [1, 2, 3, 8]


def test_a_folder_of_format_1_is_read_and_carried_over_by_the_first_change(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "model"))
    model = ModelFolder(folder)
    assert [known.name for known in model.roster.classes()] == ["0", "1", "two"]
    assert not (folder / LOG).exists()
    model.rename("0", "null")
    assert (folder / LOG).exists() and not (folder / "judgement.json").exists()
    assert [entry.kind for entry in model.history()] == ["fit", "discover", "rename", "rename"]
    assert [known.name for known in model.roster.classes()] == ["null", "1", "two"]
    model.undo(3)
    assert [known.name for known in model.roster.classes()] == ["null", "1", "new-1"]


def test_undone_steps_of_before_the_log_can_still_be_done_again(tmp_path: Path) -> None:
    """The former file listed what holds, and apart from it what each undo had taken back."""
    store = grown(tmp_path, 3)
    with store.writing():
        store.act(rename(0, "lion"))
        store.act(rename(5, "truck"))
        expected = store.judgement()
        store.undo(stage=True)
        store.undone()
        lines = store.history().lines
    old = [line.model_dump(exclude={"id", "time", "made", "images"}) for line in lines]
    for line in old:
        for key in ("files", "targets", "of"):
            line.pop(key)
    former = {
        "format": 1,
        "names": {"0": "lion"},
        "merged": {},
        "actions": [old[0], old[1], old[3]],
        "undone": [[old[2], old[4]]],
    }
    (tmp_path / LOG).unlink()
    write_sealed(tmp_path / "judgement.json", former)
    assert store.judgement() == Judgement(names={"0": "lion"})
    with store.writing():
        assert [action.kind for action in store.redo()] == ["discover", "rename"]
    assert store.judgement() == expected and len(store.records()) == 3
    assert not (tmp_path / "judgement.json").exists()


def test_one_action_is_taken_back_alone_and_brought_back(tmp_path: Path) -> None:
    grown(tmp_path, 2, **DRAWN)
    model = ModelFolder(tmp_path)
    for name, to in (("cat", "lion"), ("dog", "wolf"), ("new-1", "cow")):
        model.rename(name, to)
    before = model.store.judgement()
    assert "renaming of cat to lion" in model.undo(3)
    assert model.roster.names == ["cat", "wolf", "cow", "new-2"]
    assert [entry.undone for entry in model.history()] == [False, False, True, *3 * [False]]
    model.redo()
    assert model.store.judgement() == before
    assert not any(entry.undone for entry in model.history())


def test_what_cannot_be_taken_back_alone_says_what_must_go_first(tmp_path: Path) -> None:
    grown(tmp_path, 3, **DRAWN)
    model = ModelFolder(tmp_path)
    model.rename("cat", "lion")  # 4
    model.rename("dog", "cat")  # 5: takes the name that 4 gave free
    model.rename("new-4", "cow")  # 6: about a class of the last stage
    state = (tmp_path / LOG).read_bytes()
    with pytest.raises(GoalError, match=r"first: 5 \(the renaming of dog to cat\)"):
        model.undo(4)
    with pytest.raises(GoalError, match=r"first: 3 .*6 \(the renaming of new-4"):
        model.undo(2)
    with pytest.raises(GoalError, match="first: 6"):
        model.undo(3)
    with pytest.raises(GoalError, match="Only the labelled stage"):
        model.undo(1)
    for number in (0, -1, 7):
        with pytest.raises(GoalError, match="numbered 1 to 6"):
            model.undo(number)
    with pytest.raises(GoalError, match="not both"):
        model.undo(2, stage=True)
    assert (tmp_path / LOG).read_bytes() == state
    model.undo(6)
    with pytest.raises(GoalError, match="taken back already"):
        model.undo(6)
    with pytest.raises(GoalError, match="`goal redo` brings back"):
        model.undo(7)
    model.undo(3)
    assert len(model.records) == 2
    model.redo()
    model.redo()
    assert model.roster.names[5] == "cow"
