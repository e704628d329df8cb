"""What the page asks for and what it changes, without a browser."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal.features.store import FeatureStore
from goal.models.model import Model
from goal.storage.locks import locked
from tests.review.conftest import HERE, Opened, open_page


def get(opened: Opened, path: str, **given: object) -> dict[str, Any]:
    answer = opened.client.get(f"/api/{path}", params={k: str(v) for k, v in given.items()})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, less what anybody may make anew."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("report.html", ".lock")
    }


def test_the_state_is_that_of_the_model(opened: Opened) -> None:
    state, roster = get(opened, "state"), opened.model.roster
    assert [(c["id"], c["name"]) for c in state["classes"]] == [
        (known.id, known.name) for known in roster.classes()
    ]
    assert state["images"] == sum(known["size"] for known in state["classes"]) + state["unknown"]
    assert {card["classes"][0] for card in state["inbox"] if card["kind"] == "class"} == {3, 4}


def test_typical_images_are_nearest_to_the_mean_of_their_class(opened: Opened) -> None:
    listed = get(opened, "images", **{"class": 3}, count=600)
    keys = [row["id"] for row in listed["rows"]]
    store = FeatureStore(opened.model.store.features)
    features = store.features(store.find([bytes.fromhex(key) for key in keys])).astype(np.float64)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    near = unit @ unit.mean(axis=0)
    assert listed["total"] == len(keys) > 10
    assert (np.diff(near) < 1e-5).all()
    assert sorted(keys) == sorted(get(opened, "members", **{"class": 3})["ids"])


def test_images_come_in_parts_that_join_to_the_whole(opened: Opened) -> None:
    whole = get(opened, "images", **{"class": 3}, count=600)["rows"]
    parts = [
        row
        for start in range(0, len(whole), 7)
        for row in get(opened, "images", **{"class": 3}, start=start, count=7)["rows"]
    ]
    assert parts == whole
    assert get(opened, "images", **{"class": 3}, start=10**9)["rows"] == []
    ends = get(opened, "images", **{"class": 3}, order="ends", count=8)["rows"]
    assert ends == whole[:4] + whole[::-1][:4]


def test_between_two_classes_lies_what_is_nearest_to_both(opened: Opened) -> None:
    found = get(opened, "compare", first=3, second=4, count=6)
    members = {id: set(get(opened, "members", **{"class": id})["ids"]) for id in (3, 4)}
    assert {row["id"] for row in found["first"]} <= members[3]
    assert {row["id"] for row in found["second"]} <= members[4]
    store = FeatureStore(opened.model.store.features)

    def unit(keys: list[str]) -> Any:
        rows = store.features(store.find([bytes.fromhex(key) for key in keys])).astype(np.float64)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    apart = unit(sorted(members[3])).mean(axis=0) - unit(sorted(members[4])).mean(axis=0)
    spread = unit(sorted(members[3] | members[4])) @ apart
    middle = unit([row["id"] for row in found["between"]]) @ apart
    centre = (unit(sorted(members[3])) @ apart).mean() / 2
    centre += (unit(sorted(members[4])) @ apart).mean() / 2
    assert np.abs(middle - centre).max() <= np.sort(np.abs(spread - centre))[7]


def test_rename_merge_part_undo_and_redo(opened: Opened) -> None:
    status, done = opened.act(kind="rename", classes=[3], name="four")
    assert status == 200 and "four" in str(done["done"])
    assert opened.names() == ["0", "1", "2", "four", "new-2"]
    assert opened.act(kind="merge", classes=[4], into=3)[0] == 200
    assert opened.names() == ["0", "1", "2", "four"]
    merged = get(opened, "state")["classes"][3]
    assert merged["merged"] == [{"id": 4, "name": "new-2"}]
    assert merged["size"] == get(opened, "images", **{"class": 3})["total"]
    assert opened.act(kind="unmerge", classes=[4])[0] == 200
    assert "new-2" in opened.names()
    assert opened.act(kind="undo")[0] == 200 and "new-2" not in opened.names()
    assert opened.act(kind="redo")[0] == 200 and "new-2" in opened.names()
    assert Model(opened.model.store.folder).roster.names[3] == "four"  # on disk, for everybody


def test_history_lists_everything_and_the_last_can_be_undone(opened: Opened) -> None:
    opened.act(kind="rename", classes=[3], name="four")
    entries = get(opened, "history")["entries"]
    assert "four" in entries[0]["said"] and entries[0]["undoable"]
    assert opened.act(kind="undo", entry=entries[0]["id"])[0] == 200
    assert "four" not in opened.names()


def test_an_inbox_is_emptied_by_decisions(opened: Opened) -> None:
    assert len([c for c in get(opened, "state")["inbox"] if c["kind"] == "class"]) == 2
    opened.act(kind="rename", classes=[3], name="four")
    left = [c["classes"] for c in get(opened, "state")["inbox"] if c["kind"] == "class"]
    assert left == [[4]]


@pytest.mark.parametrize(
    "wanted",
    [
        {"kind": "rename", "classes": [3], "name": "0"},
        {"kind": "rename", "classes": [3], "name": " "},
        {"kind": "rename", "classes": [99], "name": "x"},
        {"kind": "rename", "classes": [-1], "name": "x"},
        {"kind": "rename", "name": "x"},
        {"kind": "merge", "classes": [3], "into": 3},
        {"kind": "merge", "classes": [3]},
        {"kind": "conquer"},
        {"kind": "rename", "classes": ["3"], "name": "x"},
        {"kind": "rename", "classes": [3], "name": "x", "path": "/etc/passwd"},
        {"kind": "move", "images": ["../../etc/passwd"], "into": 3},
        {"kind": "move", "images": [], "into": 3},
    ],
)
def test_nonsense_is_explained_and_changes_nothing(opened: Opened, wanted: dict[str, Any]) -> None:
    before = files(opened.model.store.folder)
    status, answer = opened.act(**wanted)
    assert status == 400 and len(str(answer["error"])) > 15
    assert files(opened.model.store.folder) == before


def test_bodies_are_bounded_and_must_be_json_objects(opened: Opened) -> None:
    def post(content: bytes, kind: str = "application/json", **headers: str) -> int:
        given = {"origin": HERE, "content-type": kind, **headers}
        return opened.client.post("/api/act", content=content, headers=given).status_code

    assert post(b"x" * ((16 << 20) + 1)) == 413
    assert post(b"{}", **{"content-length": str(1 << 40)}) == 413
    assert post(b"[" * 100_000) == 400
    assert post(b"{}", "text/plain") == 400  # what a form of another site can send
    assert post(b"[]") == post(b"\xff") == post(b"") == 400
    assert post(json.dumps({"kind": "undo", "version": "x" * 100}).encode()) == 400


def test_read_only_refuses_every_change_and_writes_nothing(folder: Path) -> None:
    page = open_page(folder, read_only=True)
    before = files(folder)
    state = get(page, "state")
    assert state["read_only"] and state["can"] == []
    for kind in ("rename", "merge", "unmerge", "move", "reject", "confirm", "split", "junk"):
        wanted = {"kind": kind, "classes": [3], "into": 4, "name": "x", "images": ["0" * 32]}
        assert page.act(**wanted)[0] == 403, kind
    for kind in ("undo", "redo"):
        assert page.act(kind=kind)[0] == 403
    key = get(page, "members", **{"class": 3})["ids"][0]
    assert page.client.get(f"/thumb/{key}").status_code == 200
    assert files(folder) == before


def test_a_page_that_is_behind_does_nothing(opened: Opened) -> None:
    seen = opened.version
    opened.model.rename("new-1", "by another")
    body = {"kind": "rename", "version": seen, "classes": [4], "name": "mine"}
    answer = opened.client.post("/api/act", json=body, headers={"origin": HERE})
    assert answer.status_code == 409 and "changed" in answer.json()["error"]
    assert opened.names()[3:] == ["by another", "new-2"]
    assert opened.act(kind="rename", classes=[4], name="mine")[0] == 200


def test_a_second_writer_is_told_and_nothing_is_lost(opened: Opened) -> None:
    with locked(opened.model.store.folder):
        status, answer = opened.act(kind="rename", classes=[3], name="four")
    assert status == 409 and "Another process" in str(answer["error"])
    assert opened.act(kind="rename", classes=[3], name="four")[0] == 200
    assert "four" in opened.names()


def test_a_model_that_is_moved_away_and_back(opened: Opened, tmp_path: Path) -> None:
    folder = opened.model.store.folder
    shutil.move(folder, tmp_path / "away")
    for path in ("version", "state", "history"):
        answer = opened.client.get(f"/api/{path}")
        assert answer.status_code == 400 and "Put it back" in answer.json()["error"]
    body = {"kind": "undo", "version": "x"}
    assert opened.client.post("/api/act", json=body, headers={"origin": HERE}).status_code == 400
    assert not folder.exists()
    shutil.move(tmp_path / "away", folder)
    assert opened.act(kind="rename", classes=[3], name="four")[0] == 200


def test_a_new_stage_is_seen(opened: Opened) -> None:
    before = get(opened, "state")
    opened.model.undo(stage=True)
    after = get(opened, "state")
    assert after["version"] != before["version"] and after["images"] < before["images"]
    assert [known["name"] for known in after["classes"]] == ["0", "1", "2"]


def members(opened: Opened, id: int) -> list[str]:
    return list(get(opened, "members", **{"class": id})["ids"])


def test_images_are_moved_and_rejected_and_taken_back(opened: Opened) -> None:
    before = {id: members(opened, id) for id in (3, 4)}
    chosen = before[3][:3]
    status, done = opened.act(kind="move", images=chosen, into=4)
    assert status == 200 and "moving" in str(done["done"])
    assert set(chosen) <= set(members(opened, 4)) and not set(chosen) & set(members(opened, 3))
    rows = get(opened, "images", **{"class": 4}, count=600)["rows"]
    assert {row["id"] for row in rows if row["answered"]} == set(chosen)
    assert opened.act(kind="undo")[0] == 200
    assert {id: sorted(members(opened, id)) for id in (3, 4)} == {
        id: sorted(keys) for id, keys in before.items()
    }
    assert opened.act(kind="reject", images=chosen, classes=[3])[0] == 200
    assert not set(chosen) & set(members(opened, 3))


def test_images_make_a_class_of_their_own(opened: Opened) -> None:
    chosen = members(opened, 3)[:6]
    status, done = opened.act(kind="move", images=chosen, name="sixes")
    assert status == 200, done
    known = next(c for c in get(opened, "state")["classes"] if c["name"] == "sixes")
    assert set(chosen) <= set(members(opened, known["id"]))
    assert opened.act(kind="move", images=chosen, name="sixes")[0] == 400
    assert opened.act(kind="undo")[0] == 200 and "sixes" not in opened.names()


def test_a_class_is_confirmed_split_and_junked(opened: Opened) -> None:
    assert opened.act(kind="confirm", classes=[3])[0] == 200
    state = get(opened, "state")
    assert [known["id"] for known in state["classes"] if known["confirmed"]] == [3]
    assert [3] not in [card["classes"] for card in state["inbox"]]
    whole = set(members(opened, 4))
    assert opened.act(kind="split", classes=[4])[0] == 200
    parts = {known["id"] for known in get(opened, "state")["classes"]} - {0, 1, 2, 3}
    assert len(parts) >= 2 and whole & set(members(opened, max(parts)))
    assert opened.act(kind="undo")[0] == 200
    assert opened.act(kind="junk", classes=[4])[0] == 200
    after = get(opened, "state")
    assert 4 not in [known["id"] for known in after["classes"]] and after["unknown"] >= len(whole)
    assert len(members(opened, -1)) == after["unknown"]


def test_one_decision_is_undone_and_later_ones_stay(opened: Opened) -> None:
    opened.act(kind="rename", classes=[3], name="four")
    entry = get(opened, "history")["entries"][0]["id"]
    opened.act(kind="rename", classes=[4], name="five")
    assert opened.act(kind="undo", entry=entry)[0] == 200
    assert opened.names()[3:] == ["new-1", "five"]
    assert opened.act(kind="undo", entry=entry)[0] == 400  # it is undone already
