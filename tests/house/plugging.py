"""Plug-ins for tests: a package laid out as pip would, and commands that find it there."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import goal

SOURCE = Path(goal.__file__).parents[1]

Points = Mapping[str, Mapping[str, str]]


def declare(site: Path, package: str, points: Points) -> None:
    """Write what tells Python of an installed package and its entry points."""
    folder = site / f"{package.replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
    text = ""
    for group, names in points.items():
        text += f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in names.items())
    (folder / "entry_points.txt").write_text(text)


def install(project: Path, site: Path) -> None:
    """Install a pure project with a src/ folder: its modules and its entry points."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project / "src", site, dirs_exist_ok=True, ignore=without)
    declare(site, about["name"], about["entry-points"])


def python(site: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in an environment with what is installed in `site`."""
    paths = os.pathsep.join([str(site), str(SOURCE)])
    variables = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=variables, cwd=cwd or site
    )
