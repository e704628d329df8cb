"""A model's life on digits: learned, interrupted, corrected, undone, and asked about images."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from goal.common.errors import GoalError
from goal.common.progress import Item, Reporter
from goal.counting.estimators import Count
from goal.learning.learner import Learner
from goal.methods.registry import METHODS
from goal.models import opened
from goal.models.looking import pooled
from goal.models.model import Model
from goal.numerics.simplex import VertexLedger

from .digit_folders import fitted, quick_settings, screened, write_digits

WEEK = {**dict.fromkeys(range(4), range(10, 14)), 4: range(12), 5: range(12)}


class Interrupted(Exception):
    """What a killed process leaves behind, without the kill."""


class Dying(Reporter):
    """Breaks off training before its epoch `last`."""

    def __init__(self, last: int) -> None:
        self.last = last

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        for number, item in enumerate(items):
            if "epochs" in task and number == self.last:
                raise Interrupted
            yield item


def rows_of(model: Model, step: int) -> list[dict[str, str]]:
    with (model.store.path(step) / "predictions.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Base digits 0-3, then 4 and 5 discovered."""
    root = tmp_path_factory.mktemp("grown")
    model = fitted(root / "model", root / "labelled")
    assert model.discover(screened(write_digits(root / "week", WEEK)), 2) is not None
    return model


def test_tables_of_a_stage_agree_and_name_what_is_new(grown: Model) -> None:
    rows = rows_of(grown, 1)
    assert list(rows[0]) == [
        *("file", "class", "class_id", "confidence", "new", "stage"),
        *("unknown", "second", "second_confidence", "margin"),
    ]
    assert len(rows) == 40 and {row["new"] for row in rows} == {"True", "False"}
    for row in rows:
        is_new = row["class"].startswith("new-")
        assert row["new"] == str(is_new) and row["stage"] == str(int(is_new))
        assert 0 < float(row["confidence"]) <= 1
    table = pyarrow.parquet.read_table(grown.store.path(1) / "predictions.parquet")
    assert table.column_names == list(rows[0])
    assert table["class_id"].to_pylist() == [int(row["class_id"]) for row in rows]
    sizes = grown.records[1].sizes
    assert sum(sizes.values()) == 40
    counts = np.bincount([int(row["class_id"]) for row in rows], minlength=6)
    assert [sizes.get(str(id), 0) for id in range(6)] == counts.tolist()


def test_predicting_the_stage_again_gives_the_same_and_one_by_one_too(grown: Model) -> None:
    root = grown.store.folder.parent
    week = screened(root / "week")
    again = grown.predict(week)
    stored = [int(row["class_id"]) for row in rows_of(grown, 1)]
    assert again.ids.tolist() == stored
    for name in week.names[:: len(week) // 3]:
        single = grown.predict(screened(Path(name)))
        assert single.ids.tolist() == [stored[week.names.index(name)]]


def test_the_page_shows_new_classes_under_their_current_names(tmp_path: Path) -> None:
    model = fitted(tmp_path / "model", tmp_path / "labelled")
    model.discover(screened(write_digits(tmp_path / "week", WEEK)), 1)
    model.rename("new-1", "<script>alert(1)</script>")
    page = (tmp_path / "model" / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    stored = json.loads((model.store.path(1) / "gallery.json").read_text())
    assert stored["classes"].keys() == {"4"} and stored["thumbnails"]


def test_judgement_holds_in_predictions_and_in_later_stages(tmp_path: Path) -> None:
    model = fitted(tmp_path / "model", tmp_path / "labelled")
    week = screened(write_digits(tmp_path / "week", WEEK))
    model.discover(week, 2)
    before = model.predict(week)
    model.rename("new-1", "four")
    model.merge("four", ["new-2"])
    after = model.predict(week)
    assert after.ids.tolist() == [4 if id == 5 else id for id in before.ids.tolist()]
    assert set(after.columns()["class"]) <= {"0", "1", "2", "3", "four"}

    later = screened(write_digits(tmp_path / "later", {0: range(14, 18), 6: range(12)}))
    record = model.discover(later, 1)
    assert record is not None and record.names == ["new-3"] and record.num_known == 6
    assert [known.name for known in model.roster.classes()] == ["0", "1", "2", "3", "four", "new-3"]
    assert 5 not in model.predict(week).ids
    model.undo()
    assert model.roster.names[4] == "four" and model.roster.owner[5] == 4
    model.undo(stage=True)
    assert model.roster.names == ["0", "1", "2", "3"]
    assert model.store.judgement().names == {}
    with pytest.raises(GoalError, match="Only the labelled stage is left"):
        model.undo()


def test_undo_and_again_is_the_same_model(tmp_path: Path, grown: Model) -> None:
    root = grown.store.folder.parent
    model = fitted(tmp_path / "model", root / "labelled")
    model.discover(screened(root / "week"), 2)
    model.undo()
    model.discover(screened(root / "week"), 2)
    for name in ("predictions.csv", "predictions.parquet", "gallery.json", "state.pt"):
        first, second = (m.store.path(1) / name for m in (grown, model))
        assert first.read_bytes() == second.read_bytes(), name


def test_an_interrupted_command_goes_on_to_the_very_same_model(tmp_path: Path) -> None:
    data = tmp_path / "labelled"
    whole = fitted(tmp_path / "whole", data, "goal")
    with pytest.raises(Interrupted):
        fitted(tmp_path / "cut", data, "goal", Dying(2))
    assert Model(tmp_path / "cut").store.records() == []
    cut = fitted(tmp_path / "cut", data, "goal")
    week = screened(write_digits(tmp_path / "week", WEEK))
    whole.discover(week, 2)
    with pytest.raises(Interrupted):
        Model(tmp_path / "cut", Dying(1)).discover(week, 2)
    assert len(cut.records) == 1
    assert (tmp_path / "cut" / ".work" / "checkpoint.pt").exists()
    cut.discover(week, 2)
    for step in (0, 1):
        for name in ("predictions.csv", "history.jsonl", "state.pt"):
            first, second = (m.store.path(step) / name for m in (whole, cut))
            assert first.read_bytes() == second.read_bytes(), (step, name)
    assert cut.discover(week, 2) == cut.records[1]  # the same command again changes nothing
    with pytest.raises(Interrupted):
        other = write_digits(tmp_path / "other", {6: range(12)})
        Model(tmp_path / "cut", Dying(1)).discover(screened(other), 1)
    assert "unfinished" in cut.undo() and len(cut.records) == 2


def test_nothing_new_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown: Model
) -> None:
    before = len(grown.records)
    monkeypatch.setattr(Learner, "count_new", lambda self, tokens, index: Count(0, 1, 0.5))
    known = screened(write_digits(tmp_path / "known", {0: range(14, 18), 1: range(14, 18)}))
    assert grown.discover(known) is None
    assert len(grown.records) == before and not grown.store.work.exists()


def test_too_few_vertices_are_an_early_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goal.models.opened.room_for", lambda settings, base: base + 2)
    model = fitted(tmp_path / "model", tmp_path / "labelled", "goal")
    assert (model.records[0].capacity, model.records[0].free) == (6, 2)
    week = screened(write_digits(tmp_path / "week", WEEK))

    def forbidden(*arguments: object) -> Learner:
        raise AssertionError("the backbone was loaded before the error")

    with monkeypatch.context() as patch:
        patch.setattr(opened, "Learner", forbidden)
        with pytest.raises(GoalError, match=r"only 2 of 6 are free.*extend-vertices"):
            Model(tmp_path / "model").discover(week, 3)
    assert len(model.records) == 1

    before = model.predict(week).ids.tolist()
    record = model.extend_vertices(8)
    assert (record.kind, record.capacity, record.free) == ("extend", 8, 4)
    assert Model(tmp_path / "model").predict(week).ids.tolist() == before
    found = model.discover(week, 3)
    assert found is not None and found.index == 1 and len(set(found.vertices)) == 3
    model.undo()
    assert "added vertices" in model.undo()
    assert model.records[-1].capacity == 6
    with pytest.raises(GoalError, match="at most 64"):
        model.extend_vertices(65)


def test_files_that_go_bad_are_skipped_and_listed(tmp_path: Path, grown: Model) -> None:
    folder = write_digits(tmp_path / "odd", {0: range(14, 18), 6: range(12)})
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "cut.jpg")
    content = (folder / "cut.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(content[: len(content) // 2])  # its header is whole
    (folder / "=cmd.png").write_bytes(b"no image")
    given = screened(folder)
    lost = Path(given.names[0])
    lost.unlink()  # after it was screened
    found = grown.predict(given)
    assert len(found.names) == 15
    reasons = dict(found.skipped)
    assert set(reasons) == {str(folder / "cut.jpg"), str(folder / "=cmd.png"), str(lost)}
    record = grown.discover(given, 1)
    assert record is not None and (record.images, record.skipped) == (15, 3)
    with (grown.store.path(record.step) / "skipped.csv").open(newline="") as stream:
        assert {row["file"] for row in csv.DictReader(stream)} == set(reasons)
    grown.undo()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_lives_in_a_model(name: str, tmp_path: Path) -> None:
    if name in ("kmeans", "goal"):
        pytest.skip("the other tests use it")
    quick = {"training": {"base_epochs": 1, "stage_epochs": 1}, "bank": {"views": 1}}
    model = fitted(tmp_path / "model", tmp_path / "labelled", name, settings=quick)
    week = screened(write_digits(tmp_path / "week", {0: range(10, 13), 4: range(8)}))
    record = model.discover(week, 1)
    if name in ("frost", "simgcd", "simgcd_plus"):  # one epoch brings no image of the new class
        assert record is None and len(model.records) == 1
        return
    assert record is not None
    stored = [int(row["class_id"]) for row in rows_of(model, 1)]
    assert Model(tmp_path / "model").predict(week).ids.tolist() == stored
    assert set(stored) <= set(range(5))


def test_requests_that_make_no_sense(grown: Model, tmp_path: Path) -> None:
    week = screened(write_digits(tmp_path / "w", {0: range(3)}))
    for bad in (0, -1, "many", True):
        with pytest.raises(GoalError, match="whole number from 1"):
            grown.discover(week, bad)
    with pytest.raises(GoalError, match="3 images cannot show 4"):
        grown.discover(week, 4)
    (tmp_path / "none").mkdir()
    with pytest.raises(GoalError, match="no image to learn from"):
        grown.discover(screened(tmp_path / "none"))
    with pytest.raises(GoalError, match="holds a model already"):
        grown.fit(week, np.zeros(3, np.int64), ["zero"], quick_settings())
    with pytest.raises(GoalError, match="banked views"):
        quick_settings("kmeans", {"bank": {"views": "fresh"}})


def test_scores_of_merged_classes_are_the_best_of_theirs() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0, 0.0], [5.0, 4.0, -1.0, 0.5]])
    expected = [[3.0, 2.0, 0.0], [5.0, 4.0, 0.5]]
    assert pooled(scores, [0, 1, 0, 3]).tolist() == expected


def test_two_processes_cannot_change_one_model(grown: Model) -> None:
    with grown.store.writing(), pytest.raises(GoalError, match="Another process is working"):
        Model(grown.store.folder).rename("new-1", "x")


def test_vertices_are_listed(tmp_path: Path) -> None:
    model = fitted(tmp_path / "model", tmp_path / "labelled", "goal")
    assert [known.vertex for known in model.roster.classes()] == [0, 1, 2, 3]
    ledger = model.learner().ledger
    assert isinstance(ledger, VertexLedger)
    assert model.records[0].capacity == len(ledger.owners) == 64  # the projector's width here
