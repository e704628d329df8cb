"""The whole story by commands: labelled digits, weeks of new folders, a person's judgement."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal.data.decoding import decode
from goal.data.images import DataSettings
from tests.cli.test_commands import run
from tests.models.digit_folders import write_digits
from tests.tiny_clip import write_clip

QUICK = ["--set", "training.base_epochs=5", "training.stage_epochs=5", "bank.views=2"]
BASE = dict.fromkeys(range(4), range(40))
FIRST = {**dict.fromkeys(range(4), range(40, 46)), 4: range(40), 5: range(40)}
SECOND = {**dict.fromkeys(range(6), range(46, 52)), 6: range(40)}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def assert_same_classes(path: Path, rows: list[dict[str, str]], merged: list[str]) -> None:
    """The exported graph agrees with the table, in which classes were merged."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path)
    facts = session.get_modelmeta().custom_metadata_map
    images = [np.asarray(decode(Path(row["file"]))) for row in rows]
    scores = [session.run(None, {"pixels": image[None]})[0][0] for image in images]
    names = np.array(json.loads(facts["class_names"]))[np.argmax(scores, axis=1)]
    expected = [row["class"] for row in rows]
    found = [merged[0] if name in merged else name for name in names.tolist()]
    assert np.mean(np.array(found) == expected) > 0.97  # the bank rounds to 16 bits


def test_weeks_of_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "labelled", BASE, labelled=True)
    write_digits(tmp_path / "week-1", FIRST)
    write_digits(tmp_path / "week-2", SECOND)
    (tmp_path / "week-1" / "Thumbs.db").write_bytes(b"not an image")
    model = ["--model", "m"]

    code, out, _ = run(capsys, "fit", "labelled", *model, "--backbone", "digits-vit", *QUICK)
    assert code == 0 and "Learned 4 classes from 160 images." in out

    code, out, err = run(capsys, "discover", "week-1", *model)
    assert code == 0, err
    assert re.search(r"Estimated \d new class.* is the runner-up.*--new \d", " ".join(out.split()))
    assert "Skipped 1 file:" in out
    stage = tmp_path / "m" / "stages" / "001"
    found = json.loads((stage / "stage.json").read_text())["names"]
    assert found[0] == "new-1"
    assert [row["reason"] for row in rows_of(stage / "skipped.csv")]
    first_week = rows_of(stage / "predictions.csv")
    assert len(first_week) == 104

    new = [row for row in first_week if "/4-" in row["file"] or "/5-" in row["file"]]
    assert sum(row["new"] == "True" for row in new) > len(new) / 2

    code, out, _ = run(capsys, "rename", "new-1", "early bird", *model)
    assert code == 0 and "new-1 is called early bird now." in out
    code, out, _ = run(capsys, "discover", "week-2", *model, "--new", "2")
    assert code == 0 and "2 new classes" in out
    fresh = json.loads((tmp_path / "m/stages/002/stage.json").read_text())["names"]
    assert fresh == [f"new-{len(found) + 1}", f"new-{len(found) + 2}"]

    code, out, _ = run(capsys, "merge", *fresh, *model)
    assert code == 0
    code, out, _ = run(capsys, "predict", "week-2", *model, "--out", "preds.csv")
    assert code == 0 and "Predictions: " in out
    names = {row["class"] for row in rows_of(tmp_path / "preds.csv")}
    assert fresh[1] not in names and fresh[0] in names

    code, out, _ = run(capsys, "classes", *model)
    assert code == 0 and "early bird" in out and fresh[1] in out  # as merged into the other
    code, out, _ = run(capsys, "unmerge", fresh[1], *model)
    assert code == 0
    code, out, _ = run(capsys, "export", "--onnx", "m.onnx", *model)
    assert code == 0
    assert_same_classes(tmp_path / "m.onnx", rows_of(tmp_path / "preds.csv"), fresh)
    code, _, err = run(capsys, "suggest-names", "--names", "x", "--clip", "none", *model)
    assert code == 1 and "Cannot read the candidate names" in err
    (tmp_path / "names.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "clip").mkdir()
    candidates = ["--names", "names.txt", "--clip", str(write_clip(tmp_path / "clip"))]
    code, out, _ = run(capsys, "suggest-names", *candidates, *model)
    lines = [line for line in out.splitlines() if fresh[0] in line]
    assert code == 0 and "goal rename" in out and len(lines) == 1
    assert all(colour in lines[0] for colour in ("red (", "green (", "blue ("))
    code, out, _ = run(capsys, "undo", "--stage", *model)
    assert code == 0 and f"the model knows {4 + len(found)} classes" in out
    code, out, _ = run(capsys, "classes", *model)
    assert "early bird" in out and fresh[0] not in out

    single = next((tmp_path / "week-1").glob("0-*.png"))
    code, out, _ = run(capsys, "predict", str(single), "week-1/Thumbs.db", *model)
    assert code == 0 and single.name in out.replace("\n", "") and "Skipped 1 file" in out
    for words, text in ((["none"], "There is no file or folder"), ([], "at least one folder")):
        code, _, err = run(capsys, "predict", *words, *model)
        assert code == 1 and text in err
    code, out, _ = run(capsys, "show", *model)
    assert code == 0 and str(tmp_path / "m" / "report.html") in out.replace("\n", "")
    assert "early bird" in (tmp_path / "m" / "report.html").read_text()


def test_commands_that_compute_nothing_load_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_digits(tmp_path / "labelled", dict.fromkeys(range(2), range(4)), labelled=True)
    model = ["--model", str(tmp_path / "m")]
    options = ["--backbone", "digits-vit", "--method", "kmeans", "--set", "bank.views=1"]
    assert run(capsys, "fit", str(tmp_path / "labelled"), *model, *options)[0] == 0
    script = (
        "import sys; from goal.cli import main\n"
        "for words in (['classes'], ['rename', '0', 'zero'], ['merge', 'zero', '1'], ['show']):\n"
        "    try:\n"
        f"        main([*words, *{model}])\n"
        "    except SystemExit as stop:\n"
        "        assert not stop.code, words\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "False\n"


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_missing_device_is_explained_alike_in_fit_and_run(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_digits(tmp_path / "labelled", dict.fromkeys(range(2), range(4)), labelled=True)
    fit = ["fit", str(tmp_path / "labelled"), "--model", str(tmp_path / "m"), "--device", device]
    code, _, told = run(capsys, *fit, "--backbone", "digits-vit")
    assert code == 1 and f"Cannot compute on the device '{device}'" in told
    again = run(capsys, "run", "digits/kmeans", "--out", str(tmp_path / "r"), "--device", device)
    assert (again[0], again[2]) == (1, told)
    assert not (tmp_path / "m").exists()


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(tmp_path)
    write_digits(tmp_path / "x", {0: range(1)}, labelled=True)
    for words, text in (
        (["classes", "--model", empty], "holds no model"),
        (["discover", empty, "--model", empty], "holds no model"),
        (["predict", f"{empty}/none", "--model", empty], "holds no model"),
        (["fit", f"{empty}/none", "--model", f"{empty}/m"], "There is no folder"),
        (["fit", f"{empty}/x/0", "--model", f"{empty}/m"], "one folder of images per class"),
        (["fit", empty, "--model", f"{empty}/m", "--method", "gaol"], "Did you mean 'goal'"),
        (["merge", "a", "--model", empty], "at least two classes"),
        (["fit", f"{empty}/x", "--model", f"{empty}/x"], "is not empty and holds no model"),
    ):
        code, _, err = run(capsys, *words)
        assert code == 1 and text in err, words


def test_a_missing_backbone_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_digits(tmp_path / "labelled", {0: range(2), 1: range(2)}, labelled=True)
    code, _, err = run(capsys, "fit", f"{tmp_path}/labelled", "--model", f"{tmp_path}/m")
    assert code == 1 and "hf download facebook/dinov2-small" in err


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "predict", "a.png", "--model", f"{tmp_path}/\x1b[2Jgone")
    assert code == 1 and "\x1b[2J" not in out + err and "\\x1b[2Jgone" in err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for word in ("torch", "device", "memory", "digits-vit", "embedded", DataSettings().root):
        assert word in out
