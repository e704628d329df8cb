"""Dependencies point one way; nothing happens at import; no module grows too long."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import goal

ROOT = Path(goal.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

FORBIDDEN = {
    "protocol": {"goal.data", "goal.methods", "goal.bank", "goal.run", "torch"},
    "metrics": {"goal.data", "goal.methods", "goal.protocol", "goal.run", "torch"},
    "geometry": {"goal.data", "goal.methods", "goal.protocol", "goal.run"},
    "losses": {"goal.data", "goal.methods", "goal.protocol", "goal.run", "goal.bank"},
    "methods": {
        "goal.protocol",
        "goal.data",
        "goal.metrics",
        "goal.files",
        "goal.bank",
        "goal.building",
        "goal.shelf",
        "goal.sources",
        "goal.run",
        "goal.config",
        "goal.checkpoint",
    },
    "data": {"goal.methods", "goal.run", "goal.config", "goal.bank", "goal.protocol"},
    "backbone": {"goal.methods", "goal.run", "goal.config", "goal.bank", "goal.data"},
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_dependencies_point_one_way(part: str) -> None:
    paths = [p for p in MODULES if p.relative_to(ROOT).parts[0] in (part, f"{part}.py")]
    assert paths
    for path in paths:
        for name in imports(path):
            for banned in FORBIDDEN[part]:
                assert name != banned and not name.startswith(f"{banned}."), (path, name)


def test_only_the_command_line_imports_the_command_line() -> None:
    others = [p for p in MODULES if p.parent.name != "cli"]
    users = [p.name for p in others if any(n.startswith("goal.cli") for n in imports(p))]
    assert users == ["__main__.py"]


def test_importing_the_package_is_light_and_silent() -> None:
    script = "import sys, goal, goal.cli; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n" and result.stderr == ""


def test_modules_stay_short() -> None:
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: count for name, count in long.items() if count > 400} == {}
