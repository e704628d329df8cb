"""Which classes lie near each other: places against loops, the tree in words and on the page."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from goal.cli import main
from goal.models.classes import Roster
from goal.models.history import Judgement
from goal.models.nearness import NEAR, Nearness, drawing, nearness, places_of, written
from goal.models.page import write_page
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.storage import manifest


def test_places_are_as_far_apart_as_means_in_deviations() -> None:
    rng = np.random.default_rng(0)
    means, mixed = rng.normal(size=(5, 7)), rng.normal(size=(7, 7))
    within = mixed @ mixed.T
    count, *values = np.frombuffer(places_of(means, within), "<f4")
    places = np.reshape(values, (5, -1))
    assert count == 5
    round_ = within / 2 + np.eye(7) * np.trace(within) / 14
    for first, second in itertools.combinations(range(5), 2):
        away = means[first] - means[second]
        expected = np.sqrt(away @ np.linalg.solve(round_, away))
        assert np.isclose(np.linalg.norm(places[first] - places[second]), expected, rtol=1e-4)


def record(kind: str, step: int, names: list[str]) -> StageRecord:
    about = {"created": "2026-11-08T09:05:00+00:00", "version": "0", "key": "k", "trunk": "t"}
    classes = {"names": names, "vertices": [None] * len(names), "num_known": 2 * step}
    return StageRecord.parse({"kind": kind, "step": step, "index": step, **classes, **about})


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Store, list[StageRecord]]:
    """Two labelled classes far apart, and two discovered ones beside the second."""
    store = Store(tmp_path / "shop")
    records = [record("fit", 0, ["cat", "dog"]), record("discover", 1, ["new-1", "new-2"])]
    folder = store.path(1)
    folder.mkdir(parents=True)
    places = np.array([[0.0, 0], [10, 0], [10, 2], [10, 3]], "<f4")
    (folder / NEAR).write_bytes(written(places))
    (folder / "gallery.json").write_text('{"classes": {}, "thumbnails": {}}')
    manifest.seal(folder, [NEAR, "gallery.json"])
    return store, records


def test_the_tree_in_words(shop: tuple[Store, list[StageRecord]]) -> None:
    store, records = shop
    near = nearness(store, records, Roster(records, Judgement()))
    assert near is not None
    assert near.candidates() == [("new-1", "new-2"), ("dog", "new-1"), ("dog", "new-2")]
    lines = [line.lstrip(" ├└│─") for line in near.lines()]
    assert sorted(line for line in lines if "." not in line) == ["cat", "dog", "new-1", "new-2"]
    # (10 + sqrt(104) + sqrt(109)) / 3, then (2 + 3) / 2, then 1
    assert [line for line in lines if "." in line] == ["10.2", "2.5", "1.0"]


def test_merged_classes_lie_in_their_middle(shop: tuple[Store, list[StageRecord]]) -> None:
    store, records = shop
    near = nearness(store, records, Roster(records, Judgement(merged={"3": 2})))
    assert near is not None and near.names == ["cat", "dog", "new-1"]
    assert near.places[2].tolist() == [10, 2.5] and near.candidates() == [("dog", "new-1")]


def test_what_was_made_since_lies_nowhere_and_a_file_of_other_classes_is_not_read(
    shop: tuple[Store, list[StageRecord]],
) -> None:
    store, records = shop
    split = Judgement(made={"4": "half"})
    near = nearness(store, records, Roster(records, split))
    assert near is not None and list(near.ids) == [0, 1, 2, 3] and near.pairs()[0] == (2, 3)
    path = store.path(1) / NEAR
    for places in (np.zeros((2, 4)), np.zeros((8, 2)), np.zeros((0, 2))):
        path.write_bytes(written(places))
        manifest.seal(store.path(1), [NEAR, "gallery.json"])
        assert nearness(store, records, Roster(records, Judgement())) is None


def test_models_of_before_have_no_tree(shop: tuple[Store, list[StageRecord]]) -> None:
    store, records = shop
    (store.path(1) / NEAR).unlink()
    assert nearness(store, records, Roster(records, Judgement())) is None
    page = write_page(store, records, Roster(records, Judgement())).read_text()
    assert "<svg class='tree'" not in page


def test_the_page_draws_every_class_and_join_once(
    shop: tuple[Store, list[StageRecord]],
) -> None:
    store, records = shop
    judgement = Judgement(names={"2": "<b>odd</b>" + "x" * 60})
    page = write_page(store, records, Roster(records, judgement)).read_text()
    section = page.split("<section id='near'>")[1].split("</section>")[0]
    assert section.count("<text") == 4 and section.count("<path") == 3
    assert "&lt;b&gt;odd" in section and "<b>odd" not in section


def test_few_and_many_classes_are_not_drawn() -> None:
    for count in (2, 301):
        assert drawing(Nearness(range(count), ["a"] * count, 1, np.zeros((count, 2)))) is None
    drawn = drawing(Nearness(range(300), ["a"] * 300, 1, np.zeros((300, 2))))
    assert drawn is not None and len(drawn.joins) == 299


def test_the_command_shows_the_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(4, 16))
    labelled = np.concatenate([centre + rng.normal(size=(30, 16)) for centre in centres[:2]])
    week = np.concatenate([centre + rng.normal(size=(30, 16)) for centre in centres])
    np.savez(tmp_path / "labelled.npz", features=labelled, labels=np.repeat(["a", "b"], 30))
    np.save(tmp_path / "week.npy", week)
    model = ["--model", str(tmp_path / "model")]
    for words in (
        ["fit", str(tmp_path / "labelled.npz"), *model],
        ["discover", str(tmp_path / "week.npy"), *model, "--new", "2"],
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert not stop.value.code, capsys.readouterr()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["classes", *model, "--tree"])
    lines = capsys.readouterr().out.splitlines()
    names = [line.lstrip(" ├└│─") for line in lines if "be one class" not in line]
    assert {"a", "b", "new-1", "new-2"} <= set(names) and len(names) == 7
