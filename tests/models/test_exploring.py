"""Images of a model are found by likeness and by copies, and questions come telling ones first."""

from pathlib import Path

import numpy as np
import pytest

from goal.cli import main
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.features.labelled import open_given
from goal.models.model import Model
from tests.models.planted import cloud, labelled_model

COPIES = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Four labelled classes, then a stage with two new ones, and copies of an image of class 0."""
    folder = tmp_path_factory.mktemp("exploring")
    model = labelled_model(folder)
    known = [cloud(label, 20, seed=1) for label in range(4)]
    copies = cloud(0, 1, seed=5) + 0.0005 * cloud(12, COPIES, seed=6)
    rows = [*known, cloud(8, 40, seed=1), cloud(9, 40, seed=1), copies]
    np.savez(folder / "week.npz", features=np.concatenate(rows))
    model.discover(open_given([str(folder / "week.npz")], Reporter()), 2)
    return model


def one(path: Path, label: int, seed: int) -> ImageSet:
    np.savez(path, features=cloud(label, 1, seed))
    return open_given([str(path)], Reporter())


def test_search_is_exact(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = one(tmp_path / "one.npz", 8, seed=40)
    monkeypatch.setattr("goal.models.exploring._BLOCK", 17)  # many blocks
    hits = model.search(wanted, 30)
    labelled = [cloud(label, 60, seed=0) for label in range(4)]
    copies = cloud(0, 1, seed=5) + 0.0005 * cloud(12, COPIES, seed=6)
    week = [cloud(label, 20, seed=1) for label in range(4)]
    week += [cloud(8, 40, seed=1), cloud(9, 40, seed=1), copies]
    every = np.concatenate([*labelled, *week]).astype(np.float16).astype(np.float64)
    target = cloud(8, 1, seed=40)[0].astype(np.float64)
    cosines = every @ target / np.linalg.norm(every, axis=1) / np.linalg.norm(target)
    expected = np.sort(cosines)[::-1][:30]
    assert np.allclose([hit.cosine for hit in hits], expected, atol=2e-3)
    assert len({hit.digest for hit in hits}) == 30
    assert len({hit.class_id for hit in hits}) == 1 and hits[0].class_id >= 4


def test_search_takes_one_image_and_a_sensible_number(model: Model, tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="from 1"):
        model.search(one(tmp_path / "one.npz", 8, seed=40), 0)
    np.savez(tmp_path / "two.npz", features=cloud(8, 2, seed=1))
    with pytest.raises(GoalError, match="one image at a time"):
        model.search(open_given([str(tmp_path / "two.npz")], Reporter()))


def test_copies_are_one_group_and_nothing_else_is(model: Model) -> None:
    groups = model.duplicates()
    assert [len(group) for group in groups] == [COPIES]
    assert all(hit.cosine > 0.999 for hit in groups[0])


def test_questions_begin_with_two_images_of_each_new_class(model: Model) -> None:
    found = model.next(8)
    assert len(found) == 8 and model.next(3) == found[:3]
    assert [question.kind for question in found[:4]] == ["typical"] * 2 + ["diverse"] * 2
    assert {question.classes for question in found[:2]} == {(4,), (5,)}
    assert {question.kind for question in found[4:]} >= {"between", "same"}
    table = model.table()
    for question in found[:4]:
        row = table.position[question.digests[0]]
        assert (int(table.class_id[row]),) == question.classes
    assert len({question.digests for question in found[:4]}) == 4


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    model = labelled_model(tmp_path)
    np.savez(tmp_path / "w.npz", features=np.concatenate([cloud(8, 40, 1), cloud(9, 40, 1)]))
    model.discover(open_given([str(tmp_path / "w.npz")], Reporter()), 2)
    first = model.next(1)[0]
    name = model.roster.names[first.classes[0]]
    model.confirm(name, [first.digests[0].hex()])
    again = model.next(10)
    assert first.digests not in {question.digests for question in again}


def test_before_anything_was_discovered_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert labelled_model(tmp_path).next() == []


def command(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


def test_the_commands_say_what_they_find(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(model.store.folder)
    one(tmp_path / "one.npz", 8, seed=40)
    command(["search", str(tmp_path / "one.npz"), "--model", folder, "--top", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("new-" in line for line in lines)
    command(["duplicates", "--model", folder])
    assert f"has {COPIES - 1} near-copies" in capsys.readouterr().out
    command(["next", "--model", folder, "--count", "2"])
    assert capsys.readouterr().out.startswith("1. Is this new-")
