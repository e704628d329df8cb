"""Odd terminals, odd names, odd numbers: a message and exit code 1, never 'a bug in goal'."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import run
from tests.report.runs import write_run

ODD = os.fsdecode(b"od\xffd [/x] [link=\x1bc]")


def goal(*words: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "goal", *words],
        capture_output=True,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_an_ascii_terminal_gets_tables_in_ascii(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [80.0, 60.0], seed=0)
    write_run(tmp_path / "b", [81.0, 62.0], seed=1)
    code, out, err = goal("compare", str(tmp_path), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert code == 0, err
    assert out.isascii() and "+-" in out
    code, _, err = goal("compare", str(tmp_path / "wörter"), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert code == 1 and err.startswith("Error: ") and err.isascii()


def test_names_that_are_no_text_and_look_like_markup_are_printed(tmp_path: Path) -> None:
    write_run(tmp_path / ODD, [80.0, 60.0])
    code, out, err = goal("report", str(tmp_path / ODD))
    assert code == 0, err
    assert out.endswith("od\ufffdd [/x] [link=\ufffdc]/report.html\n")
    for words in (["classes", "--model", ODD], ["verify", ODD], ["resume", ODD], ["compare", ODD]):
        code, out, err = goal(*words)
        assert code == 1 and err.startswith("Error: "), (words, err)
        assert "\x1b" not in out + err


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_named_with_its_line(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [80.0, 60.0])
    (folder / "history.jsonl").write_text(f'{{"stage": 0, "epoch": 1, "loss": {number}}}\n')
    (folder / "manifest.json").unlink(missing_ok=True)
    code, _, err = run(capsys, "report", str(folder))
    assert code == 1
    assert "history.jsonl is damaged in line 1" in err and number in err


def test_labels_in_a_file_are_answered_with_what_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.csv").write_text("file,label\na.png,cat\n")
    code, _, err = run(capsys, "fit", str(tmp_path / "labels.csv"), "--model", str(tmp_path / "m"))
    assert code == 1
    assert "labels.csv is a file" in err and "one folder of images per class" in err
