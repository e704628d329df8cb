"""A model held open, copied, moved and damaged; its classes as scikit-learn sees them."""

import copy
import io
import json
import pickle
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.model_selection import cross_val_score

from goal import Goal
from goal.backbone.trunk import BackboneSettings
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.own_images import gather
from goal.models import backbones, folder
from goal.models.model import Model
from goal.models.places import writable
from goal.models.store import StageRecord
from tests.cli.test_commands import run
from tests.models.digit_folders import QUICK, digits, fitted, held, screened, write_digits

WEEK = {0: range(10, 13), 4: range(12), 5: range(12)}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    made = fitted(tmp_path / "model", tmp_path / "labelled")
    made.discover(screened(write_digits(tmp_path / "week", WEEK)), 2)
    return made


def test_a_model_held_open_follows_another_process(model: Model, tmp_path: Path) -> None:
    other_week = screened(write_digits(tmp_path / "other", {6: range(12), 7: range(12)}))
    model.predict(other_week)
    other = Model(model.store.folder)
    other.undo()
    other.discover(other_week, 2)
    expected = Model(model.store.folder).predict(other_week)
    assert model.predict(other_week).ids.tolist() == expected.ids.tolist()
    np.testing.assert_array_equal(model.predict(other_week).confidence, expected.confidence)


def test_a_stale_page_is_drawn_anew(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: Any) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_page", killed)
        with pytest.raises(KeyboardInterrupt):
            model.rename("new-1", "four")
    page = model.store.folder / "report.html"
    assert "four" not in page.read_text()
    assert model.refresh() is None and "four" in page.read_text()


def test_undo_by_command_names_what_it_takes(
    model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--model", str(model.store.folder)]
    _, out, _ = run(capsys, "rename", "new-1", "a\nb", *where)
    assert "new-1 is called a b now." in out and model.roster.names[4] == "a b"
    _, out, _ = run(capsys, "undo", *where)
    assert "renaming of new-1 to a b" in out and "goal redo" in out
    assert model.roster.names[4] == "new-1" and len(model.records) == 2
    _, out, _ = run(capsys, "undo", *where)
    assert "stage 1 (27 images, 2 new classes)" in out and len(model.records) == 1
    for _ in range(2):
        run(capsys, "redo", *where)
    assert len(model.records) == 2 and model.roster.names[4] == "a b"


def test_a_flipped_bit_in_the_gallery_is_explained(
    model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model.store.path(1) / "gallery.json"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    code, _, err = run(capsys, "show", "--model", str(model.store.folder))
    assert code == 1 and "gallery.json has changed" in err


@pytest.mark.parametrize("words", [["classes"], ["predict"], ["discover"], ["export"], ["undo"]])
def test_a_command_parses_each_step_once(
    model: Model,
    tmp_path: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []
    parse = StageRecord.parse

    def noting(content: Any, *where: Any) -> StageRecord:
        parsed.append(content["step"])
        return parse(content, *where)

    monkeypatch.setattr(StageRecord, "parse", noting)
    more = {"export": ["--onnx", str(tmp_path / "m.onnx")]}
    week = [str(tmp_path / "week")] if words[0] in ("predict", "discover") else []
    code, _, err = run(
        capsys, *words, *week, "--model", str(model.store.folder), *more.get(words[0], [])
    )
    assert code == 0, err
    assert sorted(parsed) == [0, 1]


def test_nothing_is_overwritten_unasked(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, week = ["--model", str(model.store.folder)], str(tmp_path / "week")
    inside = model.store.path(1) / "predictions.csv"
    before = inside.read_bytes()
    code, _, err = run(capsys, "predict", week, *where, "--out", str(inside), "--force")
    assert code == 1 and "model folder" in err and inside.read_bytes() == before
    out = tmp_path / "out.csv"
    out.write_text("mine")
    code, _, err = run(capsys, "predict", week, *where, "--out", str(out))
    assert code == 1 and "--force" in err and out.read_text() == "mine"
    assert run(capsys, "predict", week, *where, "--out", str(out), "--force")[0] == 0
    assert out.read_text().startswith("file,class")
    with pytest.raises(GoalError, match="model folder"):
        writable(model.store.folder / "new.onnx", force=True)
    code, _, _ = run(capsys, "show", *where, "--out", str(tmp_path / "page.html"))
    assert code == 0 and "</html>" in (tmp_path / "page.html").read_text()


def test_a_moved_backbone_is_given_anew_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded = Path(backbones.__file__).parents[1] / "backbone" / "embedded" / "digits-vit"
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(embedded, old)
    write_digits(tmp_path / "labelled", dict.fromkeys(range(2), range(6)), labelled=True)
    where = ["--model", str(tmp_path / "m")]
    small = ["transform.image_size=8", "transform.resize=8", "bank.views=1"]
    fit = ["fit", str(tmp_path / "labelled"), *where, "--method", "kmeans"]
    code, _, err = run(capsys, *fit, "--backbone", str(old), "--set", *small)
    assert code == 0, err
    old.rename(new)
    settings = (tmp_path / "m/stages/000/settings.yaml").read_bytes()
    week = str(write_digits(tmp_path / "week", {0: range(6, 9), 4: range(8)}))
    code, _, err = run(capsys, "predict", week, *where)
    assert code == 1 and "no longer at" in err and "--backbone" in err
    assert run(capsys, "predict", week, *where, "--backbone", str(new))[0] == 0
    assert run(capsys, "discover", week, *where, "--new", "1", "--backbone", str(new))[0] == 0
    assert (tmp_path / "m/stages/000/settings.yaml").read_bytes() == settings


def test_a_models_hub_id_is_not_asked_for_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "socket", asked)
    monkeypatch.setattr(socket, "getaddrinfo", asked)
    settings = BackboneSettings(name="somebody/no-such-backbone")
    for attempt in (
        lambda: backbones.open_backbone(settings, download=False),
        lambda: backbones.open_embedder(settings, 16, download=False),
    ):
        with pytest.raises(GoalError, match="--download"):
            attempt()


# -- scikit-learn ---------------------------------------------------------------------------------


def estimator() -> Goal:
    return Goal(method="kmeans", backbone="digits-vit", settings=QUICK)


def test_cross_validation_gives_numbers() -> None:
    images, labels = held(dict.fromkeys(range(3), range(12)))
    scores = cross_val_score(estimator(), images, labels, cv=2)
    assert np.isfinite(scores).all() and scores.mean() > 0.7 and is_classifier(estimator())


def test_pickles_and_copies_stand_for_themselves() -> None:
    goal = estimator().fit(*held(dict.fromkeys(range(4), range(10))))
    week = held(WEEK)[0]
    expected = goal.predict_proba(week)
    twin, thawed = copy.deepcopy(goal), pickle.dumps(goal)
    twin.discover(week, np.int64(2))  # type: ignore[arg-type]
    assert len(goal.classes_) == 4 and twin.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(twin.labels_) == len(week)
    assert twin.labels_.tolist() == twin.predict(week).tolist()
    del goal
    np.testing.assert_array_equal(pickle.loads(thawed).predict_proba(week), expected)
    with pytest.raises(GoalError, match=r"whole number from 1.*1\.5"):
        twin.discover(held({7: range(12)})[0], 1.5)  # type: ignore[arg-type]
    assert twin.rename(4, 9).classes_.tolist() == [0, 1, 2, 3, 9, 5]
    merged = twin.merge(9, 5).classes_.tolist()
    assert merged == [0, 1, 2, 3, 9] and twin.unmerge(5).classes_.tolist() == [0, 1, 2, 3, 9, 5]
    assert len(twin.merge(9, 5).unmerge("new-2").classes_) == 6
    assert twin.rename(9, "four").classes_.tolist() == ["0", "1", "2", "3", "four", "new-2"]


def test_links_in_a_model_are_not_followed(model: Model, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (model.store.path(1) / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(GoalError, match="is a link"):
        Goal.load(model.store.folder)


def test_an_open_file_is_explained() -> None:
    for images in (io.BytesIO(b"x"), [io.BytesIO(b"x")]):
        with pytest.raises(GoalError, match="open file"):
            gather(images, Reporter())


def test_a_merged_model_has_a_column_per_class(model: Model, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    model.merge("3", ["new-2"])
    model.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    facts = session.get_modelmeta().custom_metadata_map
    names = json.loads(facts["class_names"])
    assert names == ["0", "1", "2", "3", "new-1"] and json.loads(facts["class_ids"]) == [*range(5)]
    assert "probabilities sum to 1" in facts["outputs"]
    images = [digits()[0][index] for index in range(0, 600, 20)]
    pixels = np.stack([np.asarray(image) for image in images])
    scores, probabilities = session.run(None, {"pixels": pixels})
    expected = model.predict(gather(images, Reporter()))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(probabilities.max(axis=1), expected.confidence, atol=0.02)
    agree = np.array(names)[scores.argmax(axis=1)] == expected.columns()["class"]
    assert agree.mean() > 0.95  # the bank rounds to 16 bits
