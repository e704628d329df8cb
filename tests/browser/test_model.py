"""The model page in a real browser: it holds its layout, shows its pictures, copies commands."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from goal.models.classes import Roster
from goal.models.page import write_page
from goal.models.store import Judgement
from tests.browser.conftest import Visit
from tests.models.test_page import shop


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store, records = shop(tmp_path_factory.mktemp("model"))
    names = {"2": "a-name-without-any-blank-" * 7}
    return write_page(store, records, Roster(records, Judgement(names=names, merged={"3": 2})))


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1024, "light"), (1440, "dark")])
def test_margins_alignment_and_no_sideways_scrolling(
    browser: Browser, page_file: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, page_file, width, scheme)
    page = visit.page
    expect(page.locator(".card")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("h1", ".card >> nth=0", "#classes table"):
        box = page.locator(selector).first.bounding_box()
        assert box is not None and box["x"] >= 12
    texts = page.locator("#classes td.text")
    assert {node.evaluate("e => getComputedStyle(e).textAlign") for node in texts.all()} == {"left"}
    caption = page.locator("figcaption").first
    assert caption.evaluate(
        "e => e.scrollWidth <= e.clientWidth && getComputedStyle(e).textOverflow == 'clip'"
    )
    assert visit.complaints == []
    visit.close()


def test_commands_are_copied(browser: Browser, page_file: Path) -> None:
    visit = Visit(browser, page_file, 1024)
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    command = visit.page.locator(".command").first
    command.get_by_role("button", name="Copy").click()
    expect(command.get_by_role("button")).to_have_text("Copied")
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied == command.locator("code").text_content()
    assert copied.startswith("goal discover FOLDER --model '")
    visit.close()
