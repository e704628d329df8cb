"""Commands that need no torch load none, nor what is as slow; completion; versions."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.models.digit_folders import write_digits
from tests.report.runs import write_run

HEAVY = ("torch", "transformers", "sklearn", "scipy")


def loaded_by(*commands: list[str], statement: str = "") -> set[str]:
    """Heavy packages that a fresh process has imported after these commands."""
    script = (
        f"import sys\n{statement}\nfrom goal.cli import main\nfor words in {list(commands)!r}:\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as stop:\n"
        "        assert stop.code in (0, None, 1, 2), words\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(eval(done.stdout.splitlines()[-1]))


def test_lists_help_and_versions_load_nothing() -> None:
    kinds = ("methods", "datasets", "backbones", "recipes")
    commands = [["--help"], ["run", "--help"], ["--version"], *(["list", kind] for kind in kinds)]
    assert loaded_by(*commands) == set()


def test_tables_and_reports_of_runs_load_nothing(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / str(seed), [80.0, 60.0], seed=seed)
    folder = str(tmp_path)
    assert loaded_by(["compare", folder], ["compare", folder, "--csv"], ["report", folder]) == set()


def test_a_refused_command_loads_nothing(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    commands = [["compare", none], ["report", none], ["list", "nothing"], ["run", "--nothing"]]
    assert loaded_by(*commands) == set()


def test_the_estimator_loads_no_networks() -> None:
    assert "transformers" not in loaded_by(statement="from goal import Goal")


def test_a_refused_fit_loads_nothing(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "format-1" / "model"
    taught = shutil.copytree(fixture, tmp_path / "taught")
    fitted = shutil.copytree(fixture, tmp_path / "fitted")
    shutil.rmtree(fitted / "stages" / "001")
    other = write_digits(tmp_path / "other", {8: range(2), 9: range(2)}, labelled=True)
    commands = [["fit", str(other), "--model", str(model)] for model in (taught, fitted)]
    for command in commands:
        assert loaded_by(command) == set()
        words = [sys.executable, "-m", "goal", *command]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 1 and "holds a model already" in done.stderr


def test_versions(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "goal", "--version"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0].startswith("goal ") and lines[1] == f"python {sys.version.split()[0]}"
    for name in ("torch", "transformers"):
        assert f"{name} {version(name)}" in lines


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(shell: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "goal", "--install-completion", "--shell", shell]
    home = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=home)
    assert done.returncode == 0, done.stderr
    scripts = [path for path in tmp_path.rglob("*goal*") if path.is_file()]
    assert len(scripts) == 1 and "suggest-names" in scripts[0].read_text()


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "goal", "--install-completion", "--shell", "bash"]
    subprocess.run(words, capture_output=True, env=home, check=True)
    script = next(path for path in tmp_path.rglob("goal") if path.is_file())

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        asked = (
            f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            "how=$(complete -p goal | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $how goal; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
        return {word.strip() for word in done.stdout.splitlines()}

    assert {"resume", "rename", "report", "review"} <= completed("goal", "re")
    assert "--dataset" in completed("goal", "run", "--da")


def test_commands_on_a_folder_without_a_model_load_nothing(tmp_path: Path) -> None:
    write_digits(tmp_path / "x", {0: range(1)}, labelled=True)
    commands = [["classes", "--model", str(tmp_path)], ["undo", "--model", str(tmp_path)]]
    assert loaded_by(*commands) == set()
