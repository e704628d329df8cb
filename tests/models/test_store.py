"""The model folder: whole steps only, whatever is killed when."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from goal.common.errors import GoalError
from goal.models.checking import verify_all
from goal.models.classes import Roster, class_name, class_names
from goal.models.history import Action, Judgement
from goal.models.store import StageRecord, Store
from goal.storage import files
from goal.storage.manifest import Findings


def record(step: int, **facts: Any) -> StageRecord:
    known = 2 * step
    base: dict[str, Any] = {
        "kind": "discover" if step else "fit",
        "step": step,
        "index": step,
        "created": "2026-01-01T00:00:00+00:00",
        "version": "0",
        "key": f"key {step}",
        "num_known": known,
        "names": ["cat", "dog"] if step == 0 else [f"new-{known - 1}", f"new-{known}"],
        "vertices": [known, known + 1],
        "sizes": {str(known): 5, str(known + 1): 3, "0": 1},
        "trunk": "t",
    }
    return StageRecord(**{**base, **facts})


def grown(folder: Path, steps: int, **files: bytes) -> Store:
    store, contents = Store(folder), files or {"a.txt": b"hello"}
    for step in range(steps):
        with store.writing():
            store.begin({"step": step, "key": "x"})
            store.commit(record(step), contents, {"value": torch.tensor([step])})
    return store


def listing(folder: Path) -> dict[str, str]:
    """Every file but the lock, with its checksum."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_steps_are_read_back_and_every_file_is_in_the_manifest(tmp_path: Path) -> None:
    store = grown(tmp_path, 2)
    assert [found.model_copy(update={"before": None}) for found in store.records()] == [
        record(0),
        record(1),
    ]
    assert [found.before for found in store.records()] == ["", store.seal(0)]
    assert store.state(1)["value"].tolist() == [1]
    folder = store.path(1)
    listed = json.loads((folder / "manifest.json").read_text())
    assert listed["format"] == 1
    names = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert listed["files"].keys() == names == {"a.txt", "stage.json", "state.pt"}
    for name, facts in listed["files"].items():
        assert facts == {
            "bytes": (folder / name).stat().st_size,
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
    assert not store.work.exists()


def test_a_commit_that_dies_at_any_write_leaves_the_model_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path, 1)
    before = listing(tmp_path)
    real, calls = files.replacing, 0
    for deadly in range(1, 5):
        calls = 0

        def dying(path: Path) -> Any:
            nonlocal calls
            calls += 1
            if calls == deadly:  # noqa: B023
                raise OSError("no space left")
            return real(path)

        monkeypatch.setattr(files, "replacing", dying)
        with store.writing(), pytest.raises(OSError, match="no space"):
            store.begin({"step": 1, "key": "x"})
            store.commit(record(1), {"a.txt": b"hello"}, {"value": torch.tensor([1])})
        monkeypatch.setattr(files, "replacing", real)
        assert [found.key for found in store.records()] == ["key 0"]
        kept = {name: seal for name, seal in listing(tmp_path).items() if ".work" not in name}
        assert kept == before
    assert [found.key for found in grown(tmp_path, 0).records()] == ["key 0"]


def rename(id: int, name: str) -> Action:
    return Action(kind="rename", said=f"the name {name}", ids=[id], name=name)


def merge(id: int, into: int) -> Action:
    return Action(kind="merge", said=f"the merging of {id}", ids=[id], into=into)


def test_leftovers_of_a_kill_are_cleared_by_the_next_writer(tmp_path: Path) -> None:
    store = grown(tmp_path, 3)
    with store.writing():
        for action in (rename(1, "hound"), rename(5, "truck"), merge(4, 0)):
            store.act(action)
    # Killed after the step took its place, before the work was cleared away.
    store.work.mkdir()
    files.write_json(store.work / "plan.json", {"step": 2, "key": "x"})
    # Killed in the middle of an undo, before the judgement followed.
    (tmp_path / ".undone").mkdir()
    store.path(2).replace(tmp_path / ".undone" / store.seal(2))
    with store.writing():
        assert store.plan() == {"step": 2, "key": "x"}  # step 2 is open again
        store.drop_work()
    assert store.judgement() == Judgement(names={"1": "hound"})
    with store.writing():
        store.begin({"step": 0, "key": "long done"})
    with store.writing():
        assert not store.work.exists()


def test_undoing_a_step_takes_what_was_judged_about_its_classes(tmp_path: Path) -> None:
    store = grown(tmp_path, 2)
    with store.writing():
        for action in (rename(0, "lion"), rename(3, "truck"), merge(2, 1), merge(1, 0)):
            store.act(action)
        before = listing(tmp_path)
        store.undo(stage=True)
    assert [found.step for found in store.records()] == [0]
    assert store.judgement() == Judgement(names={"0": "lion"}, merged={"1": 0})
    with store.writing():
        assert [action.kind for action in store.redo()] == ["discover", "rename", "merge"]
        assert store.redo() == []
    assert store.judgement() == Judgement(
        names={"0": "lion", "3": "truck"}, merged={"2": 1, "1": 0}
    )
    after = listing(tmp_path)
    kept = [name for name in before if name.startswith("stages")]
    assert all(after[name] == before[name] for name in kept)


def test_undo_takes_back_action_by_action_and_redo_brings_each_back(tmp_path: Path) -> None:
    store = grown(tmp_path, 2)
    with store.writing():
        store.act(rename(0, "lion"))
        store.act(merge(3, 2))
        states = [store.judgement()]
        taken = []
        while gone := store.undo():
            store.undone()
            taken.append(gone[0].kind)
            states.append(store.judgement())
        assert taken == ["merge", "rename", "discover"] and len(store.records()) == 1
        for expected in reversed(states[:-1]):
            store.redo()
            assert store.judgement() == expected
        assert len(store.records()) == 2 and store.redo() == []
        store.undo()
        store.undone()
        store.act(rename(1, "wolf"))  # something else: the way back is gone
        assert store.redo() == []


@pytest.mark.parametrize("moment", ["replace", "_note", "undone"])
def test_an_undo_cut_short_and_repeated_takes_back_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    store = grown(tmp_path, 4)
    with monkeypatch.context() as patch, store.writing():
        place = Path if moment == "replace" else Store

        def stop(*arguments: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            if moment != "undone":
                patch.setattr(place, moment, stop)
            store.undo()
            raise KeyboardInterrupt
    for _ in range(2):
        with Store(tmp_path).writing():
            assert [action.step for action in Store(tmp_path).undo()] == [3]
        assert len(Store(tmp_path).records()) == 3
    Store(tmp_path).undone()
    with Store(tmp_path).writing():
        assert [action.step for action in Store(tmp_path).undo()] == [2]


def problems(folder: Path) -> list[str]:
    found = Findings()
    verify_all(folder, found)
    return found.problems


def test_what_is_lost_or_exchanged_is_found(tmp_path: Path) -> None:
    def model(name: str) -> Store:
        return grown(tmp_path / name, 3)

    assert problems(model("whole").folder) == []
    first = model("first")
    shutil.rmtree(first.path(0))
    assert "000 is missing" in problems(first.folder)[0]
    with pytest.raises(GoalError, match="000 is missing"):
        first.records()
    last = model("last")
    shutil.rmtree(last.path(2))
    assert "002 is missing" in problems(last.folder)[0]
    judged = model("judged")
    (judged.folder / "decisions.jsonl").unlink()
    assert "decisions.jsonl is missing" in problems(judged.folder)[0]
    copied = model("copied")
    shutil.rmtree(copied.path(1))
    shutil.copytree(copied.path(0), copied.path(1))
    assert "that of step 0" in problems(copied.folder)[0]
    swapped, other = model("swapped"), Store(tmp_path / "other")
    with other.writing():
        other.begin({"step": 0, "key": "x"})
        other.commit(record(0, key="of another model"), {}, {"value": torch.tensor([7])})
    shutil.rmtree(swapped.path(0))
    shutil.copytree(other.path(0), swapped.path(0))
    assert any("does not follow" in text for text in problems(swapped.folder))
    linked = model("linked")
    linked.stages.rename(tmp_path / "elsewhere")
    linked.stages.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in problems(linked.folder)[0]


def test_more_than_a_thousand_steps_are_counted(tmp_path: Path) -> None:
    for step in range(1001):
        (tmp_path / "stages" / f"{step:03d}").mkdir(parents=True)
    assert Store(tmp_path)._count() == 1001


def test_the_same_plan_goes_on_and_another_starts_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.begin({"step": 0, "key": "a"}) is False
    (store.work / "checkpoint.pt").write_bytes(b"half")
    assert store.begin({"step": 0, "key": "a"}) is True
    assert (store.work / "checkpoint.pt").exists()
    assert store.begin({"step": 0, "key": "b"}) is False
    assert not (store.work / "checkpoint.pt").exists()


def test_damage_and_other_formats_are_named(tmp_path: Path) -> None:
    store = grown(tmp_path, 1)
    with pytest.raises(GoalError, match="holds no model"):
        Store(tmp_path / "other").require()
    path = store.path(0) / "stage.json"
    whole = path.read_text()
    path.write_text(whole.replace('"format": 1', '"format": 9'))
    with pytest.raises(GoalError, match="has format 9; this version reads format 1"):
        store.records()
    path.write_text(whole[:40])
    with pytest.raises(GoalError, match=r"stage\.json is damaged"):
        store.records()
    path.write_text(whole.replace('"step"', '"stepp"'))
    with pytest.raises(GoalError, match="no such key"):
        store.records()
    store.act(rename(0, "lion"))
    log = tmp_path / "decisions.jsonl"
    log.write_text(log.read_text().replace("lion", "loin"))
    with pytest.raises(GoalError, match="check of line 3 is wrong"):
        store.judgement()


# -- the roster -----------------------------------------------------------------------------------


def roster(**judged: Any) -> Roster:
    return Roster([record(0), record(1)], Judgement(**judged))


def after(before: Roster, action: Action) -> Roster:
    return Roster([record(0), record(1)], before.judgement.after(action))


def test_classes_with_a_persons_judgement() -> None:
    plain = roster()
    assert plain.names == ["cat", "dog", "new-1", "new-2"]
    assert [known.size for known in plain.classes()] == [2, 3, 5, 3]  # over both stages
    assert [known.stage for known in plain.classes()] == [0, 0, 1, 1]
    assert [known.vertex for known in plain.classes()] == [0, 1, 2, 3]
    judged = roster(names={"2": "cow"}, merged={"3": 2})
    assert judged.ids() == [0, 1, 2]
    assert judged.known(2).merged == (3,) and judged.known(2).size == 8
    assert judged.find("cow") == 2 and judged.find("new-2") == 3


def test_merges_of_merges_end_in_one_class() -> None:
    once = after(roster(), roster().merged("new-1", ["new-2"]))
    twice = after(once, once.merged("dog", ["new-1"]))
    assert twice.owner == [0, 1, 1, 1]
    through_a_member = after(once, once.merged("cat", ["new-2"]))
    assert through_a_member.owner == [0, 1, 0, 0]
    split = after(twice, twice.unmerged("new-2"))
    assert split.owner == [0, 1, 1, 3]
    for keep, other in (("new-1", "new-2"), ("cat", "cat")):
        with pytest.raises(GoalError, match="itself"):
            once.merged(keep, [other])
    with pytest.raises(GoalError, match="not merged"):
        once.unmerged("cat")


def test_names_are_unique_tidy_and_harmless() -> None:
    assert roster().renamed("new-1", "  red \t cow ").name == "red cow"
    assert roster().renamed("new-1", "a\x1b[0m").name == "a\\x1b[0m"
    assert roster().renamed("cat", "cat").ids == [0]
    with pytest.raises(GoalError, match="`goal merge`"):
        roster().renamed("new-1", "dog")
    with pytest.raises(GoalError, match="Did you mean 'new-1'"):
        roster().find("nwe-1")
    with pytest.raises(GoalError, match="visible"):
        class_name(" \n ")
    with pytest.raises(GoalError, match="at most 200"):
        class_name("x" * 201)
    with pytest.raises(GoalError, match="Two classes"):
        class_names(["a", "a "])


def test_new_names_go_on_counting_past_those_in_use() -> None:
    assert roster().fresh_names(2) == ["new-3", "new-4"]
    assert roster(names={"0": "new-4"}).fresh_names(2) == ["new-3", "new-5"]


def test_a_linked_folder_of_steps_is_refused(tmp_path: Path) -> None:
    grown(tmp_path / "theirs", 2)
    victim = listing(tmp_path / "theirs")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "stages").symlink_to(tmp_path / "theirs" / "stages")
    store = Store(tmp_path / "mine")
    for attempt in (store.records, store.require, lambda: store.path(0)):
        with pytest.raises(GoalError, match="leads out of its folder"):
            attempt()
    (tmp_path / "mine" / "stages").unlink()
    (tmp_path / "mine" / ".work").symlink_to(tmp_path / "theirs")
    with pytest.raises(GoalError, match="leads out of its folder"), store.writing():
        store.drop_work()
    assert listing(tmp_path / "theirs") == victim
