"""None of these: images far from all classes are said to be so, and wait for others like them."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from goal import GoalPlus
from goal.common.errors import GoalError
from goal.models.labels import with_unknown
from goal.models.model import Model
from goal.models.piles import IMAGES
from goal.models.requests import refusal
from goal.models.waiting import UNSURE, waiting_in
from tests.models.planted import cloud, labelled_model, week

KNOWN = dict.fromkeys(range(4), 25)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return labelled_model(tmp_path_factory.mktemp("planted"), count=500)


def test_as_many_fresh_known_images_are_refused_as_was_said(model: Model, tmp_path: Path) -> None:
    fresh = week(tmp_path / "fresh.npz", dict.fromkeys(range(4), 1000), seed=7)
    for share, least, most in ((0.01, 0.004, 0.02), (0.1, 0.08, 0.125)):
        refused = float(model.predict(fresh, share).unknown.mean())
        assert least <= refused <= most
    assert not model.predict(fresh).unknown.any()


def test_images_of_a_class_never_shown_are_refused(model: Model, tmp_path: Path) -> None:
    found = model.predict(week(tmp_path / "strange.npz", {9: 200}, seed=3), 0.01)
    assert found.unknown.mean() > 0.99
    assert set(found.second.tolist()) <= {0, 1, 2, 3}  # the nearest class is still told
    assert (found.confidence[found.unknown] > 0.99).all()


def test_what_is_not_refused_is_as_it_was(model: Model, tmp_path: Path) -> None:
    given = week(tmp_path / "mixed.npz", {0: 50, 2: 50, 9: 50}, seed=4)
    without, refusing = model.predict(given), model.predict(given, 0.01)
    kept = ~refusing.unknown
    assert 0.5 < kept.mean() < 0.7
    assert np.array_equal(without.ids[kept], refusing.ids[kept])
    assert np.array_equal(without.confidence[kept], refusing.confidence[kept])
    assert np.array_equal(refusing.second[~kept], without.ids[~kept])
    assert np.array_equal(refusing.second_confidence[~kept], without.confidence[~kept])


def test_tables_have_new_columns_after_the_old_ones(model: Model, tmp_path: Path) -> None:
    found = model.predict(week(tmp_path / "both.npz", {1: 3, 9: 3}, seed=5), 0.01)
    rows = list(csv.DictReader(io.StringIO(found.csv().decode())))
    old = ["file", "class", "class_id", "confidence", "new", "stage"]
    new = ["unknown", "second", "second_confidence", "margin"]
    assert list(rows[0]) == [*old, *new]
    assert [row["class"] for row in rows] == ["class-1"] * 3 + ["unknown"] * 3
    assert [row["class_id"] for row in rows] == ["1"] * 3 + ["-1"] * 3
    assert [row["unknown"] for row in rows] == ["False"] * 3 + ["True"] * 3
    for row in rows:
        margin = float(row["confidence"]) - float(row["second_confidence"])
        assert float(row["margin"]) == pytest.approx(margin, abs=2e-6)
        assert row["second"] != row["class"] and row["second"].startswith("class-")
    table = pyarrow.parquet.read_table(io.BytesIO(found.parquet())).to_pydict()
    assert table["unknown"] == [False] * 3 + [True] * 3 and table["stage"] == [0] * 3 + [-1] * 3


def test_a_small_class_that_comes_in_over_three_weeks_is_found(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    found = []
    for number in (1, 2, 3):
        given = week(tmp_path / f"week-{number}.npz", {**KNOWN, 9: 5}, seed=number)
        record = model.discover(given, "auto", 0.01)
        assert record is not None
        found.append(len(record.names))
        if number < 3:
            waiting = waiting_in(model.store)
            assert record.unsure == len(waiting) >= 4 * number
    assert found == [0, 0, 1]
    last = model.records[-1]
    assert last.waited >= 8 and last.sizes["4"] >= 13 and last.index == 3
    fresh = model.predict(week(tmp_path / "later.npz", {9: 50}, seed=9), 0.01)
    assert (fresh.ids == 4).mean() > 0.9


def test_without_refusing_small_classes_are_forgotten_as_before(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    for number in (1, 2, 3):
        given = week(tmp_path / f"week-{number}.npz", {**KNOWN, 9: 5}, seed=number)
        assert model.discover(given) is None
    assert len(model.records) == 1


def test_what_waits_outlives_a_stage_that_refuses_nothing_and_undo(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    model.discover(week(tmp_path / "1.npz", {**KNOWN, 9: 5}, seed=1), "auto", 0.01)
    waits = waiting_in(model.store).digests
    assert len(waits) >= 4
    model.discover(week(tmp_path / "2.npz", {**KNOWN, 8: 30}, seed=2), 1)
    assert model.records[-1].waited == 0 and set(waiting_in(model.store).digests) == set(waits)
    model.undo(stage=True)
    assert waiting_in(model.store).digests == waits


def test_an_image_that_waits_and_is_given_again_counts_once(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    first = week(tmp_path / "1.npz", {**KNOWN, 9: 5}, seed=1)
    model.discover(first, "auto", 0.01)
    more = week(tmp_path / "2.npz", {**KNOWN, 9: 5}, seed=1)  # all of it once more
    before = len(waiting_in(model.store))
    record = model.discover(more, "auto", 0.01)
    assert record is not None and record.waited == 0
    assert len(waiting_in(model.store)) == before


def test_an_image_that_is_none_of_the_classes_is_in_the_table_of_its_stage(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    model.discover(week(tmp_path / "1.npz", {**KNOWN, 9: 5}, seed=1), "auto", 0.01)
    folder = model.store.path(1)
    rows = pyarrow.parquet.read_table(folder / IMAGES).to_pydict()
    waiting = pyarrow.parquet.read_table(folder / UNSURE).to_pydict()
    none = [digest for digest, id in zip(rows["digest"], rows["class_id"], strict=True) if id < 0]
    assert none == waiting["digest"] and waiting["since"] == [1] * len(none)
    assert sum(model.records[-1].sizes.values()) == len(rows["digest"]) - len(none)


def test_a_method_that_cannot_tell_says_so(tmp_path: Path) -> None:
    digits = np.eye(4)[np.arange(40) % 4] + 0
    assert refusal("off") is None and refusal(None) is None and refusal("0.05") == 0.05
    for wrong in ("1", 0, "much", "-0.1", "nan"):
        with pytest.raises(GoalError, match="between 0 and 1"):
            refusal(wrong)
    with pytest.raises(GoalError, match="between 0 and 1"):
        GoalPlus(unknown=2).fit(digits, np.arange(40) % 4)


def test_arrays_say_none_as_minus_one_or_in_words() -> None:
    features = np.concatenate([cloud(label, 100, seed=0) for label in range(3)])
    fresh = np.concatenate([cloud(1, 20, seed=2), cloud(9, 20, seed=2)])
    for labels, none in (
        (np.repeat([4, 7, 9], 100), -1),
        (np.repeat(["a", "b", "c"], 100), "unknown"),
    ):
        usual = GoalPlus().fit(features, labels)
        told = GoalPlus(unknown=0.02).fit(features, labels)
        assert none not in usual.predict(fresh).tolist()
        assert (told.predict(fresh)[20:] == none).all()
        assert (told.predict(fresh)[:20] == none).mean() < 0.2
        assert (told.strangeness(fresh)[20:] == 0).all()


def test_labels_without_a_strange_image_are_untouched() -> None:
    names = np.array(["a", "b"])
    assert with_unknown(names, np.array([False, False])) is names
    assert with_unknown(names, np.array([True, False])).tolist() == ["unknown", "b"]
    assert with_unknown(np.array([3, 4]), np.array([True, False])).tolist() == [-1, 4]
