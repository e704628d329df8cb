"""Templates: every value comes out as text, and a value that is missing is an error."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

import goal
from goal.pages.html import render

from .hostile import CONTROLS, TAG, Elements, assert_harmless

PACKAGE = Path(goal.__file__).parent
TEMPLATES = sorted((PACKAGE / "pages" / "templates").glob("*.html"))
STEERING = CONTROLS + "\t\n\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
MODEL: dict[str, Any] = {
    "state": "0" * 64,
    "name": "birds",
    "labelled": "1 class",
    "discovered": "0 classes",
    "images": "3 images",
    "updated": "today",
    "commands": [],
    "stages": [],
    "classes": {"headings": ["Class"], "rows": [], "texts": 1},
    "estimates": [],
    "tree": None,
    "alike": [],
    "galleries": [],
    "version": "0",
}


@given(st.text() | st.text(STEERING + "<>&'\"/!-="))
@settings(deadline=None)
def test_any_text_reads_back_as_it_is_less_what_steers(text: str) -> None:
    classes = {**MODEL["classes"], "rows": [[f"[{text}]"]]}
    page = render("model.html", **MODEL | {"classes": classes})
    assert len(re.findall(r"<td\b", page)) == 1
    meant = "".join("\ufffd" if char in STEERING else char for char in text)
    assert f"[{meant}]" in Elements(page).text


def test_text_that_no_file_can_hold_is_replaced() -> None:
    assert "<h1>a\ufffdb</h1>" in render("model.html", **MODEL | {"name": "a\ud800b"})


@pytest.mark.parametrize("missing", MODEL)
def test_a_missing_value_is_an_error(missing: str) -> None:
    given = {key: value for key, value in MODEL.items() if key != missing}
    with pytest.raises(UndefinedError, match=f"'{missing}' is undefined"):
        render("model.html", **given)


def test_data_cannot_end_its_element_and_reads_back() -> None:
    content = {"cards": [f"</script>{TAG}", "<!--", CONTROLS, "&amp;", "\u2028"]}
    page = render("gallery.html", name=f"'>{TAG}", content=content)
    assert_harmless(page, render("gallery.html", name="g onerror", content={}))
    (text,) = re.findall(r"<script[^>]*>(.*)</script>", page)
    assert json.loads(text) == content


def test_scripts_write_text_and_never_markup() -> None:
    scripts = sorted((PACKAGE / "pages" / "assets").glob("*.js"))
    assert {"galleries.js", "report.js", "charts.js", "commands.js"} <= {p.name for p in scripts}
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    )
    for path in scripts:
        assert not re.search(forbidden, path.read_text()), path


def test_a_line_break_in_a_name_begins_no_line_of_the_page() -> None:
    page = render("model.html", **MODEL | {"name": "x\nimport os\r\u2028y"})
    assert not [line for line in page.splitlines() if line.startswith("import os")]


def test_figures_that_are_none_do_not_come_into_data() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render("gallery.html", name="g", content={"cards": [float("nan")]})


def test_nothing_but_our_own_assets_goes_into_a_page_unescaped() -> None:
    assert {"base.html", "report.html", "model.html"} <= {path.name for path in TEMPLATES}
    for path in TEMPLATES:
        assert not re.search(r"\|\s*safe|autoescape|Markup|forceescape", path.read_text()), path
    trusting = {
        path.relative_to(PACKAGE).as_posix(): path.read_text().count("Markup(")
        for path in PACKAGE.rglob("*.py")
        if "Markup(" in path.read_text()
    }
    assert trusting == {"pages/html.py": 1}
    tags = re.compile(r"</?(?:p|b|h[1-6]|t[dhr]|table|div|span|style|script|body|html)\b[^\"']*>")
    assert [path.name for path in PACKAGE.rglob("*.py") if tags.search(path.read_text())] == []
