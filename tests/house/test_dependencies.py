"""Few dependencies, each justified; the light ones suffice for help; extras say how to get them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.runs.grid import run_cells

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECORD = (ROOT / "docs" / "decisions" / "0005-dependencies.md").read_text()


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[<>=!~\[; ]", text)[0].lower().replace("_", "-") for text in requirements}
    return found - {PROJECT["name"]}


def justified() -> set[str]:
    rows = [line for line in RECORD.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [cell.strip() for row in rows for cell in row.split("|")[1].split(",")]
    return {cell.lower().replace("_", "-").strip("`") for cell in cells}


def test_every_dependency_is_justified() -> None:
    extras = PROJECT["optional-dependencies"]
    needed = names(PROJECT["dependencies"])
    for extra, requirements in extras.items():
        if extra != "dev":
            needed |= names(requirements)
    assert needed - justified() == set()


def test_no_justification_without_a_dependency() -> None:
    known = names(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        known |= names(requirements)
    assert justified() - known - {"package"} == set()


def test_every_dependency_has_a_lower_bound_and_a_pinned_version() -> None:
    pinned = names((ROOT / "constraints.txt").read_text().splitlines())
    for text in PROJECT["dependencies"]:
        assert ">=" in text, text
    assert names(PROJECT["dependencies"]) - pinned == set()


HEAVY = ["torch", "transformers", "huggingface_hub", "sklearn", "scipy", "numpy", "PIL", "jinja2"]


def test_help_needs_no_heavy_package() -> None:
    script = f"""
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split('.')[0] in {HEAVY!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
from goal.cli import main
for arguments in (['--help'], ['run', '--help'], ['--version']):
    try:
        main(arguments)
    except SystemExit as stop:
        assert not stop.code, stop.code
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Continual generalized category discovery" in done.stdout


def test_a_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GoalError, match=r"pip install 'goal-cgcd\[ray\]'"):
        run_cells([], "ray", Reporter())
