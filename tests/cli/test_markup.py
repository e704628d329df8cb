"""No text is ever markup on our consoles, so no file can speak to the terminal."""

import ast
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table

import goal
from goal.cli import common
from tests.cli.test_commands import run

SOURCES = sorted(Path(goal.__file__).parent.rglob("*.py"))
EVIL = "[link=\x1bc]click[/link] [bold]x[/bold] [/nothing] :smile:"


def printed(console: common.HarmlessConsole) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> common.HarmlessConsole:
    made = common.HarmlessConsole(width=200)
    monkeypatch.setattr(made, "file", io.StringIO())
    monkeypatch.setattr(made, "_force_terminal", True)
    return made


def test_texts_are_printed_as_they_are_wherever_they_stand(
    console: common.HarmlessConsole,
) -> None:
    table = Table(EVIL, title=EVIL, caption=EVIL)
    table.add_row(EVIL)
    console.print(table)
    console.print(EVIL)
    console.print(EVIL, markup=True)
    console.say(EVIL)
    console.rule(EVIL)
    shown = printed(console)
    assert shown.count(EVIL.replace("\x1b", "\ufffd")) == 8
    assert "\x1bc" not in shown and "\x1b]8" not in shown


def test_the_guard_is_needed() -> None:
    """Rich itself would send the escape."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, force_terminal=True).print(EVIL.replace("[/nothing]", ""))
    assert "\x1b]8" in out.getvalue() and "\x1bc" in out.getvalue()


def breaches(tree: ast.AST) -> Iterator[str]:
    """Ways around the console: other consoles, markup asked for, columns that parse it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "rich.markup":
            yield "rich.markup"
        if isinstance(node, ast.ImportFrom) and node.module == "rich":
            yield "rich.print and its like"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in ("from_markup", "Console", "Prompt", "Markdown", "from_ansi"):
            yield name
        if given.get("markup", "False") != "False":
            yield "markup asked for"
        if name == "TextColumn" and given.get("markup") != "False":
            yield "a column that reads markup"


def test_nothing_in_the_package_goes_around_the_console() -> None:
    found = [f"{p.name}: {what}" for p in SOURCES for what in breaches(ast.parse(p.read_text()))]
    assert found == []
    for text in ("Console()", "TextColumn('x')", "c.print(x, markup=True)", "Text.from_markup(x)"):
        assert list(breaches(ast.parse(text)))


def test_about_a_hostile_bank_nothing_is_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = tmp_path / "bank" / "trunk[bold]" / "0123456789abcdef"
    shelf.mkdir(parents=True)
    text = '{"format": 1, "view": "[link=\\u001bc]v[/link]", "transform": "[/x]"}'
    (shelf / "about.json").write_text(text)
    code, out, err = run(capsys, "bank", "info", "--folder", str(tmp_path))
    assert code == 0, err
    assert "\x1b" not in out and "[/x]" in out and "trunk[bold]" in out
