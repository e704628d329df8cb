"""Dependencies point one way; nothing happens at import; no module grows too long."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import goal

ROOT = Path(goal.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# The whole graph, in the order in which data flows: what each room may import of goal.
ALLOWED: dict[str, set[str]] = {
    "common": set(),
    "storage": {"common"},
    "distributed": {"common", "storage"},
    "data": {"common", "storage"},
    "protocol": {"common", "data"},
    "backbone": {"common"},
    "bank": {"common", "storage", "distributed", "data", "backbone"},
    "features": {"common", "storage", "data", "backbone"},
    "numerics": {"common"},
    "losses": set(),
    "methods": {"common", "distributed", "backbone", "numerics", "losses"},
    "counting": {"common", "backbone", "numerics"},
    "settings": {"common", "storage", "data", "protocol", "backbone", "bank", "methods"},
    "learning": {
        *("common", "storage", "distributed", "data", "backbone", "bank", "numerics"),
        *("methods", "counting", "settings"),
    },
    "pages": set(),
    "evaluation": {
        *("common", "storage", "data", "protocol", "backbone", "numerics", "methods", "pages"),
    },
    "runs": {
        *("common", "storage", "distributed", "data", "protocol", "backbone", "bank", "methods"),
        *("settings", "learning", "evaluation"),
    },
    "models": {
        *("common", "storage", "distributed", "data", "backbone", "bank", "features", "numerics"),
        *("methods", "settings", "learning", "pages", "evaluation"),
    },
    "testing": {
        *("common", "storage", "data", "protocol", "backbone", "methods", "settings", "learning"),
    },
    "report": {"common", "storage", "pages", "evaluation", "settings", "runs"},
    "verify": {"common", "storage", "bank", "features", "runs", "models"},
    "review": {"common", "storage", "data", "features", "pages", "evaluation", "models"},
    "cli": {
        *("common", "storage", "distributed", "data", "protocol", "backbone", "bank", "features"),
        *("methods", "settings", "learning", "runs", "models", "report", "verify", "review"),
    },
}
EVERYONE = {"__version__"}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms that a module imports, itself excepted."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            plain = node.module == "goal"
            names = [f"goal.{a.name}" for a in node.names] if plain else [node.module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("goal.")}
    return found - {room(path)} - EVERYONE


@pytest.mark.parametrize("name", ALLOWED)
def test_rooms_import_only_what_they_may(name: str) -> None:
    paths = [path for path in MODULES if room(path) == name]
    assert paths
    against = {
        f"{path.relative_to(ROOT)} imports {other}"
        for path in paths
        for other in imported(path) - ALLOWED[name]
    }
    assert against == set()


def test_the_table_has_no_room_that_comes_later_and_none_that_is_not_needed() -> None:
    order = list(ALLOWED)
    for place, (name, others) in enumerate(ALLOWED.items()):
        assert others <= set(order[:place]), name
        used = set().union(*(imported(path) for path in MODULES if room(path) == name))
        assert others - used == set(), f"{name} does not need them"


def test_every_module_is_in_a_room_and_few_lie_outside() -> None:
    loose = {room(path) for path in MODULES if path.parent == ROOT}
    assert len(loose) <= 6
    assert {room(path) for path in MODULES} <= {*ALLOWED, *loose}


def test_every_room_says_what_it_is_and_what_it_may_import() -> None:
    for name in ALLOWED:
        init = ROOT / name / "__init__.py"
        if not init.exists():  # a single module
            continue
        text = ast.get_docstring(ast.parse(init.read_text()))
        assert text is not None, name
        said = re.search(r"May import: (.*?)\.", text.replace("\n", " "))
        assert said is not None, name
        listed = {word.strip() for word in said.group(1).split(",")}
        wanted = ALLOWED[name] or {"nothing of goal"}
        assert listed == wanted, name


def test_the_document_has_the_same_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "architecture.md"
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page.read_text(), re.MULTILINE)
    table = {name: set(others.split(", ")) - {"nothing"} for name, others in rows}
    assert list(table) == list(ALLOWED)
    assert table == ALLOWED


# Modules whose functions import others of goal, and why; the command line does so everywhere.
LATE = {
    "__init__.py": "start-up",
    "methods/registry.py": "start-up",
    "features/bank.py": "the extra ray",
    "models/opened.py": "the extra onnx",
    "models/store.py": "start-up",
    "report/compare.py": "start-up",
    "settings/recipes.py": "start-up",
    "storage/manifest.py": "start-up",
}


def test_functions_import_only_extras_and_what_would_slow_the_start() -> None:
    late = set()
    for path in MODULES:
        functions = [
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)
        ]
        inside = [node for function in functions for node in ast.walk(function)]
        if any(isinstance(n, ast.ImportFrom) and str(n.module).startswith("goal") for n in inside):
            late.add(str(path.relative_to(ROOT)))
    assert {name for name in late if room(ROOT / name) != "cli"} == set(LATE)


def test_only_the_command_line_imports_the_command_line() -> None:
    users = [path.name for path in MODULES if "cli" in imported(path)]
    assert users == ["__main__.py"]


def test_importing_the_package_is_light_and_silent() -> None:
    script = "import sys, goal, goal.cli; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n" and result.stderr == ""


def test_functions_stay_short() -> None:
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text()))]
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[int(0.95 * len(lengths))] <= 26
    assert lengths[-1] <= 60


def test_modules_stay_short() -> None:
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: count for name, count in long.items() if count > 400} == {}
