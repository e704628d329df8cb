"""Images that were learned before, that come twice, that are known or show nothing."""

import csv
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from goal.common.progress import Reporter
from goal.counting.estimators import Count
from goal.data.collections import open_images
from goal.data.own_images import gather
from goal.learning.learner import Learner
from goal.methods.kmeans import FrozenKMeans
from goal.models.model import Model
from goal.models.piles import IMAGES
from tests.models.digit_folders import fitted, screened, write_digits

WEEK = {**dict.fromkeys(range(4), range(10, 14)), 4: range(12), 5: range(12)}


class Hearing(Reporter):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, text: str) -> None:
        self.heard.append(text)

    def warn(self, text: str) -> None:
        self.heard.append(text)


def table(model: Model, step: int) -> dict[str, str]:
    with (model.store.path(step) / "predictions.csv").open(newline="") as stream:
        return {Path(row["file"]).name: row["class_id"] for row in csv.DictReader(stream)}


def test_a_copied_folder_changes_nothing(tmp_path: Path) -> None:
    model = fitted(tmp_path / "model", tmp_path / "labelled")
    week = write_digits(tmp_path / "week", WEEK)
    model.discover(screened(week), 2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "model").rglob("*.*")}
    copy = shutil.copytree(week, tmp_path / "copy", copy_function=shutil.copyfile)
    model.reporter = hearing = Hearing()
    assert model.discover(screened(copy), 2) is None
    assert model.discover(screened(tmp_path / "labelled")) is None
    assert "learned in stage 1" in hearing.heard[0] and "learned in stage 0" in hearing.heard[1]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(model.records) == 2


def test_a_partly_seen_pile_teaches_only_what_is_new(tmp_path: Path) -> None:
    model = fitted(tmp_path / "model", tmp_path / "labelled")
    first = write_digits(tmp_path / "week", WEEK)
    model.discover(screened(first), 2)
    sizes = sum(known.size for known in model.roster.classes())
    second = write_digits(tmp_path / "later", {6: range(12)})
    for path in first.iterdir():
        shutil.copyfile(path, second / path.name)
    one = next(second.glob("6-*.png"))
    shutil.copyfile(one, second / "twice.png")
    record = model.discover(screened(second), 1)
    assert record is not None
    assert (record.images, record.seen, record.repeated) == (12, 40, 1)
    rows, before = table(model, 2), table(model, 1)
    assert len(rows) == 53 and rows["twice.png"] == rows[one.name]
    assert all(rows[name] == id for name, id in before.items())
    assert sum(known.size for known in model.roster.classes()) == sizes + 12
    alone = fitted(tmp_path / "alone", tmp_path / "labelled")
    alone.discover(screened(first), 2)
    alone.discover(screened(write_digits(tmp_path / "only", {6: range(12)})), 1)
    assert (alone.store.path(2) / "state.pt").read_bytes() == (
        model.store.path(2) / "state.pt"
    ).read_bytes()


def test_a_step_says_where_its_images_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that was given, and each image's place in it, however it was spelt."""
    monkeypatch.chdir(tmp_path)
    model = fitted(tmp_path / "model", Path("labelled"))
    write_digits(tmp_path / "week" / "deep", {4: range(6)})
    write_digits(tmp_path / "week", {5: range(6)})
    model.discover(open_images(["model/../week"], Reporter()), 2)
    for record, folder in zip(model.records, ("labelled", "week"), strict=True):
        rows = pyarrow.parquet.read_table(model.store.path(record.step) / IMAGES).to_pylist()
        assert record.source == str(tmp_path / folder)
        for row in rows:
            place = tmp_path / folder / row["path"]
            assert hashlib.sha256(place.read_bytes()).digest()[:16] == row["digest"]
        assert len({row["path"] for row in rows}) == record.images


def test_images_of_no_folder_have_no_place_in_one(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "week", {4: range(3)})
    paths = sorted(folder.iterdir())
    listed = gather(paths, Reporter())
    assert listed.source is None and listed.places() == [str(path) for path in paths]
    held = gather([Image.open(path) for path in paths], Reporter())
    assert held.source is None and held.places() == [None] * 3
    odd = folder / os.fsdecode(b"\xff.png")
    shutil.copyfile(paths[0], odd)
    assert open_images([odd], Reporter()).places() == [None]
    both = open_images([folder, write_digits(tmp_path / "more", {5: range(1)})], Reporter())
    assert both.source == str(tmp_path)
    assert both.places()[0] == f"week/{paths[0].name}"


def test_labelled_copies_count_once_and_two_labels_are_told(tmp_path: Path) -> None:
    data = write_digits(tmp_path / "labelled", dict.fromkeys(range(4), range(10)), labelled=True)
    source = next((data / "1").iterdir())
    shutil.copyfile(source, data / "1" / "again.png")
    shutil.copyfile(source, data / "2" / "wrong.png")
    hearing = Hearing()
    model = fitted(tmp_path / "model", data, reporter=hearing)
    assert model.records[0].images == 40 and model.records[0].repeated == 2
    assert any("two labels" in text and "wrong.png" in text for text in hearing.heard)


def test_an_estimate_is_kept_with_its_runner_up(tmp_path: Path) -> None:
    hearing = Hearing()
    base = write_digits(tmp_path / "labelled", dict.fromkeys(range(4), range(40)), labelled=True)
    model = fitted(tmp_path / "model", base, reporter=hearing)
    week = {**dict.fromkeys(range(4), range(100, 115)), 4: range(60)}
    record = model.discover(screened(write_digits(tmp_path / "new", week)))
    assert record is not None and record.estimate is not None
    sure = record.estimate
    assert sure.runner_up not in (None, sure.count) and 0 <= sure.confidence <= 1
    (said,) = [text for text in hearing.heard if text.startswith("Estimated")]
    assert f"{sure.runner_up} is the runner-up" in said and f"--new {sure.runner_up}" in said


def test_a_class_without_images_is_never_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of every other new class are taken away: the stage is learned again with the rest."""
    model = fitted(tmp_path / "model", tmp_path / "labelled")
    week = screened(write_digits(tmp_path / "week", WEEK))
    real = FrozenKMeans.class_scores

    def without_the_sixth(self: FrozenKMeans, outputs: object) -> object:
        scores = real(self, outputs)  # type: ignore[arg-type]
        scores[:, 6:] = -10
        return scores

    monkeypatch.setattr(FrozenKMeans, "class_scores", without_the_sixth)
    monkeypatch.setattr(Learner, "count_new", lambda self, tokens, index: Count(4, 3, 0.1))
    record = model.discover(week)
    assert record is not None and record.names == ["new-1", "new-2"]
    assert all(record.sizes[str(id)] > 0 for id in (4, 5))
    assert model.learner().method.num_classes == 6
    twin = fitted(tmp_path / "twin", tmp_path / "labelled")
    twin.discover(week, 2)
    states = [(m.store.path(1) / "state.pt").read_bytes() for m in (model, twin)]
    assert states[0] == states[1]


def test_pictures_without_content_are_told_and_harmless(tmp_path: Path) -> None:
    hearing = Hearing()
    model = fitted(tmp_path / "model", tmp_path / "labelled", reporter=hearing)
    folder = write_digits(tmp_path / "week", {4: range(12)})
    for name, value in (("black", 0), ("grey", 127)):
        Image.new("RGB", (16, 16), (value,) * 3).save(folder / f"{name}.png")
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    found = model.predict(screened(folder))
    assert np.isfinite(found.confidence).all() and len(found.ids) == 15
    record = model.discover(screened(folder), 1)
    assert record is not None and [Path(name).name for name in record.blank] == [
        "black.png",
        "grey.png",
    ]
    assert any("one colour" in text and "black.png" in text for text in hearing.heard)
