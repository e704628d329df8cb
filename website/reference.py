"""The references that are made from the code: every command, and every public name."""

import ast
import re

from goal.cli import app
from website.pages import ROOT

# What people import, on a page of its own.
FIRST = ("goal.models.estimator", "goal.models.arrays")


def commands() -> str:
    """The page of all commands, as their help has them."""
    text = app.generate_docs()
    head, _, rest = text.partition("## Table of Contents")
    _, _, sections = rest.partition("\n## ")
    about = "Exit codes, logs and interruptions: [commands](../commands.md).\n\n"
    page = f"{head.replace('# goal', '# Every command', 1)}{about}## {sections}"
    return re.sub(r"^(\*\*Commands\*\*:)$", r"\1", page, flags=re.MULTILINE)


def rooms() -> list[str]:
    """The rooms of the package, in the order of the architecture's table."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def estimators() -> str:
    """The page of what people import."""
    parts = ["# Goal and GoalPlus\n\nWhat is on this page keeps to the [policy](../policy.md).\n"]
    return "\n".join([*parts, *map(_module, FIRST)])


def _module(dotted: str) -> str:
    return f"## {dotted}\n\n::: {dotted}\n    options:\n      show_root_heading: false\n"


def room(name: str) -> str:
    """The page of a room: its modules and their public names."""
    folder = ROOT / "src" / "goal" / name
    if not folder.is_dir():
        return f"# {name}\n\n::: goal.{name}\n    options:\n      show_root_heading: false\n"
    about = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    paths = sorted(path for path in folder.rglob("*.py") if path.stem != "__init__")
    dotted = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths]
    parts = [f"# {name}\n\n{about or ''}\n"]
    parts += [_module(module) for module in dotted if module not in FIRST]
    if set(dotted) & set(FIRST):
        parts.append("`Goal` and `GoalPlus` have [a page of their own](python.md).\n")
    return "\n".join(parts)
