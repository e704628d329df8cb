"""Corrections by commands, on digits: each teaches, is listed, and can be taken back."""

import csv
import json
from pathlib import Path

import pytest

from goal.cli import main
from tests.cli.test_commands import run
from tests.models.digit_folders import write_digits

BASE = dict.fromkeys(range(4), range(40))
WEEK = {**dict.fromkeys(range(4), range(40, 46)), 4: range(60), 7: range(60)}
MODEL = ["--model", "m"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for which 4 and 7 are one class."""
    root = tmp_path_factory.mktemp("learned")
    write_digits(root / "labelled", BASE, labelled=True)
    write_digits(root / "week", WEEK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for words in (
            ["fit", "labelled", *MODEL, "--backbone", "digits-vit"],
            ["discover", "week", *MODEL, "--new", "1", "--unknown", "off"],
        ):
            with pytest.raises(SystemExit) as stop:
                main(words)
            assert not stop.value.code
    return root


def predicted(capsys: pytest.CaptureFixture[str], digit: int) -> list[str]:
    """Classes of images of a digit that the model never saw."""
    write_digits(Path(f"fresh-{digit}"), {digit: range(100, 130)})
    words = ["predict", f"fresh-{digit}", *MODEL, "--out", "p.csv", "--force", "--unknown", "off"]
    assert run(capsys, *words)[0] == 0
    with Path("p.csv").open(newline="") as stream:
        return [row["class"] for row in csv.DictReader(stream)]


def test_corrections(
    learned: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(learned)
    before = predicted(capsys, 7)
    assert before.count("new-1") > 25 and predicted(capsys, 4).count("new-1") > 20

    rows = [f"week/{one}" for one in sorted(p.name for p in Path("week").glob("7-*"))[:5]]
    listed = "".join(f"{name},seven\n" for name in rows)
    Path("few.csv").write_text(f"file,class\n{listed}")
    code, out, err = run(capsys, "teach", "few.csv", *MODEL)
    assert code == 0, err
    assert "Noted as 3: the teaching of 5 images of seven. `goal undo` takes it back." in out
    sevens = predicted(capsys, 7)
    assert sevens.count("seven") > 25
    assert predicted(capsys, 4).count("new-1") > 20

    four = sorted(Path("week").glob("4-*"))[0]
    code, out, err = run(capsys, "move", str(four), "--to", "0", *MODEL)
    assert code == 0 and f"Noted as 4: the moving of {four.name} to 0" in out, err
    assert run(capsys, "reject", four.name, "--from", "0", *MODEL)[0] == 0
    assert run(capsys, "confirm", "new-1", *MODEL)[0] == 0
    code, out, _ = run(capsys, "history", *MODEL)
    assert code == 0 and "the rejecting of" in out and "undone" not in out
    code, out, _ = run(capsys, "undo", "4", *MODEL)
    assert code == 0 and "moving of" in out
    code, out, _ = run(capsys, "history", "--json", *MODEL)
    entries = [json.loads(line) for line in out.splitlines()]
    assert [one["undone"] for one in entries] == [False, False, False, True, False, False, False]
    assert entries[3]["kind"] == "move" and entries[6]["kind"] == "undo"

    code, out, err = run(capsys, "split", "seven", "--into", "2", *MODEL)
    assert code == 0 and "the splitting of seven into seven, new-3" in out and "images" in out, err
    code, _, err = run(capsys, "undo", "3", *MODEL)
    assert code == 1 and "Take them back first: 8" in " ".join(err.split())
    assert run(capsys, "junk", "new-1", *MODEL)[0] == 0
    assert "new-1" not in predicted(capsys, 4) and "unknown" in predicted(capsys, 4)
    code, out, _ = run(capsys, "classes", "--plain", *MODEL)
    assert out.split() == ["0", "1", "2", "3", "seven", "new-3"]
    for _ in range(5):
        assert run(capsys, "undo", *MODEL)[0] == 0
    assert predicted(capsys, 7) == before


def test_bad_words(
    learned: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(learned)
    Path("odd.csv").write_text("picture,what\na.png,seven\n")
    Path("none.csv").write_text("file,class\nweek/lost.png,\n")
    for words, message in (
        (["move", "lost.png", "--to", "0"], "lost.png is in no stage of the model"),
        (["move", "--to", "0"], "at least one image"),
        (["junk", "9"], "no class '9'"),
        (["split", "new-1", "--into", "99"], "99 parts need 2 each"),
        (["teach", "odd.csv"], "expected file or path, and class or label"),
        (["teach", "none.csv"], "gives no class for week/lost.png"),
        (["teach", "nowhere"], "There is no folder nowhere"),
    ):
        code, _, err = run(capsys, *words, *MODEL)
        assert code == 1 and message in " ".join(err.split()), (words, err)
