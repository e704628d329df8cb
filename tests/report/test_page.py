"""The report page: says what it must, shows names as text, asks nothing of the network."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from goal.cli import main
from goal.common.errors import GoalError
from goal.report import content
from goal.report.page import write_report
from tests.pages.hostile import STRANGE, assert_harmless, struck
from tests.report.runs import write_pictures, write_run

VOID = {"meta", "img", "br"}
ATTACK = "</script><script>alert(1)</script>"
SPICED = STRANGE.replace("\0", "")  # records with null characters are refused


class Balanced(HTMLParser):
    """Fails on tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def data_of(page: str) -> Any:
    (text,) = re.findall(r"<script type='application/json' id='data'>(.*?)</script>", page)
    return json.loads(text)


def test_page_is_whole_and_self_contained(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [90.0, 80.0, 70.0])
    second = write_run(tmp_path / "b", [80.0, 60.0, 50.0], method="kmeans")
    page = write_report([first, second], tmp_path / "out" / "report.html").read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    links = re.findall(r"(?:src|href)=|https?://[\w./-]*|@import|url\(", page)
    assert set(links) <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "70.0%" in page and "goal, seed 0" in page and "kmeans, seed 0" in page


def test_seeds_are_averaged_and_published_rows_keep_their_convention(tmp_path: Path) -> None:
    five = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]
    write_run(tmp_path / "runs" / "a", five)
    write_run(tmp_path / "runs" / "b", [value + 2 for value in five], seed=1)
    with pytest.raises(SystemExit, match="0"):
        main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report.html")])
    (benchmark,) = data_of((tmp_path / "report.html").read_text())["benchmarks"]
    (group,) = benchmark["groups"]
    assert group["seeds"] == [0, 1]
    assert group["stages"][1]["all"] == [81.0, pytest.approx(2**0.5, abs=1e-3)]
    assert group["stages"][0]["novel"] is None
    assert group["paper"]["convention"] == "base/novel"
    assert group["paper"]["stages"][4] == {"all": 61.5, "old": 79.2, "new": 43.8}
    assert group["paper_forms"] == {"form": "goal_own", "forgetting": 11.82, "discovery": 53.97}


def test_details_say_what_was_taken_for_what(tmp_path: Path) -> None:
    folder = write_pictures(write_run(tmp_path / "a", [90.0, 80.0], dataset="digits"))
    page = write_report([folder], tmp_path / "report.html").read_text()
    whole = data_of(page)
    details = whole["benchmarks"][0]["groups"][0]["details"]
    stage = details["stages"][1]
    truth, named = truth_and_named(folder)
    by_hand = np.zeros((3, 4), dtype=int)
    for true, taken in zip(truth, named, strict=True):
        by_hand[0 if true < 4 else 2, 3 if taken < 0 else (0 if taken < 4 else 2)] += 1
    assert stage["confusion"]["counts"] == by_hand.tolist()
    assert sum(stage["confusion"]["right"]) == int((truth == named).sum())
    shown = {key for card in stage["cards"] for row in card["rows"].values() for key, _ in row}
    assert shown and shown <= set(whole["thumbnails"])
    assert details["births"] == [0, 0, 0, 0, 1, 1]
    assert {"embeddings", "features"} == set(stage["maps"])


def test_what_is_left_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_THUMBNAILS", 1)
    monkeypatch.setattr(content, "MAX_HEAT_CLASSES", 3)
    folder = write_pictures(write_run(tmp_path / "a", [90.0, 80.0], dataset="digits"))
    found = data_of(write_report([folder], tmp_path / "report.html").read_text())
    stage = found["benchmarks"][0]["groups"][0]["details"]["stages"][1]
    assert stage["cards"] is None and found["thumbnails"] == {}
    assert any("left out" in note and ": 1, of" in note for note in found["notes"])
    assert stage["matrix"]["classes"] == [0, 2, 5] and stage["matrix"]["of"] == 6
    assert stage["maps"]["features"]["class_count"] == 6


def test_predicted_classes_without_a_match(tmp_path: Path) -> None:
    folder = write_pictures(write_run(tmp_path / "a", [90.0, 80.0], dataset="digits"))
    path = folder / "stages" / "stage-1.npz"
    with np.load(path) as arrays:
        changed = dict(arrays) | {"owner": np.array([0, 1, 2, 3, 4, -1])}
    np.savez(path, allow_pickle=False, **changed)
    found = data_of(write_report([folder], tmp_path / "report.html").read_text())
    stage = found["benchmarks"][0]["groups"][0]["details"]["stages"][1]
    assert [card["title"] for card in stage["cards"]] == ["five", "No true class matches"]
    nameless = int((changed["predictions"] == 5).sum())
    assert sum(row[3] for row in stage["confusion"]["counts"]) == nameless > 0


def test_a_run_of_stage_0_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [90.0], dataset="digits")
    page = write_report([folder], tmp_path / "report.html").read_text()
    (group,) = data_of(page)["benchmarks"][0]["groups"]
    assert group["average"]["all"] is None and group["forgetting"]["happy"] is None


def truth_and_named(folder: Path) -> tuple[Any, Any]:
    with np.load(folder / "stages" / "stage-1.npz") as arrays:
        return arrays["truth"], arrays["owner"][arrays["predictions"]]


def test_names_are_text(tmp_path: Path) -> None:
    folder = write_pictures(write_run(tmp_path / "a", [90.0, 80.0], dataset="digits"), ATTACK)
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace("digits-vit", ATTACK.replace("/", "\\/")))
    page = write_report([folder], tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert ATTACK in data_of(page)["benchmarks"][0]["groups"][0]["details"]["names"]


def test_unfinished_or_damaged_runs_are_named(tmp_path: Path) -> None:
    folder = write_pictures(write_run(tmp_path / "a", [90.0, 80.0], dataset="digits"))
    (folder / "stages" / "stage-1.npz").write_bytes(b"PK nonsense")
    with pytest.raises(GoalError, match=r"stage-1\.npz is damaged"):
        write_report([folder], tmp_path / "report.html")
    (folder / "results.jsonl").write_text("{")
    with pytest.raises(GoalError, match="damaged"):
        write_report([folder], tmp_path / "report.html")
    (folder / "summary.json").unlink()
    with pytest.raises(GoalError, match="goal resume"):
        write_report([folder], tmp_path / "report.html")


def write_strange_run(folder: Path, text: str, seed: int = 0) -> Path:
    """A run with a text in place of every text, and of figures that pages do not rely on."""
    run = write_pictures(write_run(folder, [90.0, 80.0], dataset="digits", seed=seed))
    for name in ("summary.json", "classes.json"):
        path = run / name
        path.write_text(json.dumps(struck(json.loads(path.read_text()), text)))
    path = run / "results.jsonl"
    lines = [json.loads(line) | {"selection": text, text: text} for line in path.open()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "history.jsonl").write_text(json.dumps({"stage": 0, "epoch": 1, text: 1.0}) + "\n")
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    (run / "settings.yaml").write_text(yaml.safe_dump(settings | {"remark": text, "seed": seed}))
    return run


def strange_report(root: Path, text: str) -> str:
    first = write_strange_run(root / "first", text)
    second = write_strange_run(root / "second", f"{text} again", seed=1)
    return write_report([first, second], root / "report.html").read_text()


def test_every_text_of_two_runs_comes_out_as_text(tmp_path: Path) -> None:
    ordinary = strange_report(tmp_path / "ordinary", "harmless")
    page = strange_report(tmp_path / "strange", SPICED)
    assert_harmless(page, ordinary)
    assert [SPICED in group["label"] for group in groups_of(page)] == [True, True]


def groups_of(page: str) -> list[Any]:
    return [group for part in data_of(page)["benchmarks"] for group in part["groups"]]
