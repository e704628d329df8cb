"""What the README tells people to type works."""

import re
import shlex
from pathlib import Path

import pytest

from goal.cli import main
from tests.small_run import as_flags

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = [
    shlex.split(line.partition("#")[0])
    for line in re.findall(r"^\$ goal (.*)$", README.replace("\\\n", " "), re.MULTILINE)
]


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def exit_code(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.usefixtures("_elsewhere")
def test_commands_on_embedded_data_run() -> None:
    offline = [words for words in COMMANDS if not {"cifar100", "folder"} & set(words)]
    assert len(offline) >= 5
    for words in offline:
        small = as_flags() if words[0] in ("run", "bench", "sweep") else []
        assert exit_code([*words, *small]) == 0, words


@pytest.mark.usefixtures("_elsewhere")
def test_other_commands_are_spelt_right(capsys: pytest.CaptureFixture[str]) -> None:
    others = [words for words in COMMANDS if {"cifar100", "folder"} & set(words)]
    assert len(others) >= 2
    for words in others:
        asked = [word for word in words if word != "--download"]  # tests use no network
        assert exit_code(asked) == 1, words  # 2 would be a usage error
        assert "Error: " in capsys.readouterr().err


@pytest.mark.usefixtures("_elsewhere")
def test_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) <= 100
