"""What the README tells people to type works."""

import re
import shlex
from pathlib import Path

import pytest

from goal.cli import main
from goal.counting.estimators import Count
from goal.learning.learner import Learner
from tests.models.digit_folders import write_digits
from tests.small_run import as_flags

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = [
    shlex.split(line.partition("#")[0])
    for line in re.findall(r"^\$ goal (.*)$", README.replace("\\\n", " "), re.MULTILINE)
]


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


IMAGES = {"fit", "discover", "classes", "rename", "merge", "unmerge", "undo", "predict"}
IMAGES |= {"show", "export", "verify"}
OTHERS = [words for words in COMMANDS if words[0] not in IMAGES]


def exit_code(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.usefixtures("_elsewhere")
def test_commands_on_embedded_data_run() -> None:
    offline = [words for words in OTHERS if not {"cifar100", "folder"} & set(words)]
    assert len(offline) >= 5
    for words in offline:
        small = as_flags() if words[0] in ("run", "bench", "sweep") else []
        assert exit_code([*words, *small]) == 0, words


@pytest.mark.usefixtures("_elsewhere")
def test_other_commands_are_spelt_right(capsys: pytest.CaptureFixture[str]) -> None:
    others = [words for words in OTHERS if {"cifar100", "folder"} & set(words)]
    assert len(others) >= 2
    for words in others:
        asked = [word for word in words if word != "--download"]  # tests use no network
        assert exit_code(asked) == 1, words  # 2 would be a usage error
        assert "Error: " in capsys.readouterr().err


@pytest.mark.usefixtures("_elsewhere")
def test_commands_for_ones_own_images_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "count_new", lambda self, tokens, index: Count(2))
    write_digits(tmp_path / "labelled", dict.fromkeys(range(4), range(10)), labelled=True)
    write_digits(tmp_path / "week-1", {0: range(10, 13), 4: range(10), 5: range(10)})
    write_digits(tmp_path / "week-2", {4: range(10, 13), 6: range(10)})
    commands = [words for words in COMMANDS if words[0] in IMAGES]
    assert {words[0] for words in commands} == IMAGES
    quick = ["--set", "training.base_epochs=1", "training.stage_epochs=1", "bank.views=1"]
    for words in commands:
        small = ["--backbone", "digits-vit", *quick] if words[0] == "fit" else []
        assert exit_code([*words, *small]) == 0, words


@pytest.mark.usefixtures("_elsewhere")
def test_python_examples_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    estimator, experiment = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(estimator, "README.md", "exec"), {})
    assert "[0 1 2 3 " in capsys.readouterr().out
    assert (tmp_path / "digits-model" / "stages" / "000").is_dir()
    exec(compile(experiment, "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) <= 100
