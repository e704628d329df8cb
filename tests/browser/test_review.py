"""The page of `goal review` in a real browser: every action by mouse and by keyboard, and what goes
wrong around it."""

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, expect

from goal.models.model import Model
from goal.review.server import make_desk, prepared, uvicorn_server
from tests.browser.conftest import PATIENCE
from tests.review.conftest import grown as grown

MARKUP = "<img src=x onerror=alert(1)>"
TURNED = "\u05d7\u05ea\u05d5\u05dc \u05e7\u05d8\u05df"  # Hebrew: a small cat
LONG = "Ein-sehr-langer-Name-" * 9
EXPECTED = re.compile(r"401|409|ERR_CONNECTION|404|Failed to load resource")


class Served:
    """The page of a model folder, served by a thread, and the address that opens it."""

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        self.folder = folder
        app, held, self.address = prepared(make_desk(Model(folder), read_only), folder, None)
        self.home = self.address.partition("?")[0]
        self._server = uvicorn_server(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [held]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


class Window:
    """A window in which the page is open, with everything that it complained about."""

    def __init__(self, browser: Browser, served: Served, width: int = 1280) -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 800}, reduced_motion="reduce"
        )
        self.context.set_default_timeout(PATIENCE)
        self.served = served
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = self.tab(served.address)

    def tab(self, address: str) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._refuse)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(address)
        expect(page.locator("nav a[aria-current]")).to_have_count(1)
        return page

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, place: str) -> Page:
        self.page.goto(f"{self.served.home}#{place}")
        return self.page


@pytest.fixture
def served(grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "cache"))
    folder = Path(shutil.copytree(grown / "model", tmp_path / "model"))
    running = Served(folder)
    yield running
    running.stop()


@pytest.fixture
def window(browser: Browser, served: Served) -> Iterator[Window]:
    opened = Window(browser, served)
    yield opened
    bad = [text for text in opened.complaints if not EXPECTED.search(text)]
    assert bad == []
    assert all(url.startswith((served.home, "blob:")) for url in opened.requests)
    opened.context.close()


def names(served: Served) -> list[str]:
    return [known.name for known in Model(served.folder).roster.classes()]


def toast(page: Page) -> Locator:
    return page.locator(".toast")


def test_the_inbox_shows_new_classes_with_their_pictures(window: Window) -> None:
    page = window.page
    cards = page.locator(".cards .card[data-kind='class']")
    expect(cards).to_have_count(2)
    expect(page.locator("h1")).to_contain_text("left")
    expect(cards.first.locator("img")).to_have_count(12)
    assert page.evaluate(
        "Promise.all([...document.querySelectorAll('.cards img')].map(i => i.decode()))"
        ".then(() => true)"
    )


def test_a_class_is_named_by_mouse_and_the_name_taken_back_beside_it(window: Window) -> None:
    page = window.go("class=3")
    page.locator("main").get_by_role("button", name="Name").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("four")
    page.get_by_role("button", name="Keep").click()
    expect(page.locator("h1")).to_have_text("four")
    assert "four" in names(window.served)
    toast(page).get_by_role("button", name="Undo").click()
    expect(page.locator("h1")).to_have_text("new-1")
    assert "new-1" in names(window.served)
    toast(page).get_by_role("button", name="Redo").click()
    expect(page.locator("h1")).to_have_text("four")


def test_a_class_is_named_and_undone_by_keyboard_alone(window: Window) -> None:
    page = window.page
    page.keyboard.press("j")
    expect(page.locator(".cards .card").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("section[aria-label='Class'] h1")).to_be_visible()
    old = page.locator("h1").inner_text()
    page.keyboard.press("n")
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("by keys")
    page.keyboard.press("u")
    expect(page.locator("h1")).to_have_text(old)
    assert "by keys" not in names(window.served)


def test_merging_and_parting_by_mouse(window: Window) -> None:
    page = window.go("class=4")
    page.locator("main").get_by_role("button", name="Merge").click()
    page.get_by_role("option", name="new-1").click()
    expect(page.locator("h1")).to_have_text("This class is not there")
    page.get_by_role("link", name="new-1").click()
    expect(page.locator(".part")).to_contain_text("new-2")
    assert "new-2" not in names(window.served)
    page.get_by_role("button", name="Part new-2 again").click()
    expect(page.locator(".part")).to_have_count(0)
    assert "new-2" in names(window.served)


def test_merging_and_parting_by_keyboard(window: Window) -> None:
    page = window.go("class=4")
    expect(page.locator(".cell").first).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.type("new-1")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("This class is not there")
    page.keyboard.press("/")
    page.keyboard.type("new-1")
    page.keyboard.press("Enter")
    expect(page.locator(".part")).to_contain_text("new-2")
    page.keyboard.press("p")
    expect(page.locator(".part")).to_have_count(0)


def test_images_are_selected_by_click_shift_click_and_all(window: Window) -> None:
    page = window.go("class=3")
    cells = page.locator(".cell")
    expect(cells.nth(5)).to_be_visible()
    cells.nth(1).click()
    expect(page.locator(".selection b")).to_have_text("1 selected")
    cells.nth(4).click(modifiers=["Shift"])
    expect(page.locator(".selection b")).to_have_text("4 selected")
    cells.nth(2).click()
    expect(page.locator(".selection b")).to_have_text("3 selected")
    page.keyboard.press("a")
    total = int(page.locator("header.screen .soft").first.inner_text().split()[0])
    expect(page.locator(".selection b")).to_have_text(f"{total} selected")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".selection")).to_be_hidden()


def test_images_are_selected_and_looked_at_by_keyboard(window: Window) -> None:
    page = window.go("class=3")
    expect(page.locator(".cell").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    expect(page.locator(".selection b")).to_have_text("3 selected")
    page.keyboard.press("Escape")
    expect(page.locator(".selection")).to_be_hidden()
    page.keyboard.press("Enter")
    picture = page.locator("dialog.picture img")
    expect(picture).to_be_visible()
    before = picture.get_attribute("src")
    page.keyboard.press("j")
    expect(picture).not_to_have_attribute("src", str(before))
    page.keyboard.press("Escape")
    expect(picture).to_have_count(0)
    page.keyboard.press("o")
    expect(page.get_by_role("button", name="Doubtful first")).to_have_attribute(
        "aria-pressed", "true"
    )


def test_two_classes_are_compared_and_found_to_be_one(window: Window) -> None:
    page = window.go("compare=3,4")
    expect(page.locator(".compare .side")).to_have_count(3)
    expect(page.locator(".compare .side:nth-child(2) .tile").first).to_be_visible()
    page.keyboard.press("w")
    expect(page.locator(".compare .side h2").first).to_have_text("new-2")
    page.keyboard.press("w")
    expect(page.locator(".compare .side h2").first).to_have_text("new-1")
    page.get_by_role("button", name="Same: merge them").click()
    expect(page.locator(".part")).to_contain_text("new-2")
    assert "new-2" not in names(window.served)


def test_history_undoes_by_mouse_and_by_keyboard(window: Window) -> None:
    Model(window.served.folder).rename("new-1", "four")
    page = window.go("history")
    row = page.locator(".history li").filter(has_text="four")
    expect(page.locator(".bar").get_by_title(re.compile("four"))).to_be_visible()
    row.get_by_role("button", name="Undo").click()
    expect(toast(page)).to_contain_text("taking back of the renaming")
    assert "four" not in names(window.served)
    Model(window.served.folder).rename("new-1", "vier")
    expect(page.locator(".history li").first).to_contain_text("vier")
    expect(page.locator(".bar").get_by_title(re.compile("vier"))).to_be_visible()
    page.keyboard.press("k")
    expect(page.locator(".history li").first).to_be_focused()
    page.keyboard.press("u")
    expect(toast(page)).to_contain_text("vier")
    assert "vier" not in names(window.served)


def test_every_screen_is_reached_by_a_number_and_the_keys_are_shown(window: Window) -> None:
    page = window.page
    expect(page.locator(".cards .card").first).to_be_visible()
    labels = ("Inbox", "Classes", "Compare", "Unsure", "Search", "Map", "History")
    for number, label in enumerate(labels, start=1):
        page.keyboard.press(str(number))
        expect(page.locator(f"main section[aria-label='{label}']")).to_be_visible()
        expect(page.locator("nav a[aria-current]")).to_contain_text(label)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("undo the last decision")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_picture_is_searched_for(window: Window, grown: Path) -> None:
    page = window.go("search")
    page.locator("#picture").set_input_files(sorted((grown / "week").iterdir())[8])
    expect(page.locator(".cell .note").first).to_contain_text("1.00")
    expect(page.locator("img.asked")).to_be_visible()
    page.locator("#picture").set_input_files(
        {"name": "x.png", "mimeType": "image/png", "buffer": b"nothing"}
    )
    expect(page.locator("p[role='status']")).to_contain_text("Cannot read the image")


def test_a_lasso_selects_what_lies_in_it(window: Window) -> None:
    page = window.go("map")
    canvas = page.locator(".plane canvas").first
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 2, y + 2)
    page.mouse.down()
    for px, py in ((x + w - 2, y + 2), (x + w - 2, y + h - 2), (x + 2, y + h - 2)):
        page.mouse.move(px, py, steps=4)
    page.mouse.up()
    total = int(page.locator("header.screen .soft").first.inner_text().split()[0])
    expect(page.locator(".selection b")).to_have_text(f"{total} selected")
    page.get_by_label("Select the images of a class on the map").select_option(label="new-1")
    expect(page.locator(".selection b")).not_to_have_text(f"{total} selected")


def test_two_tabs_show_the_same_and_lose_nothing(window: Window) -> None:
    first = window.go("class=3")
    second = window.tab(f"{window.served.home}#class=3")
    first.keyboard.press("n")
    first.keyboard.type("four")
    first.keyboard.press("Enter")
    expect(first.locator("h1")).to_have_text("four")
    expect(second.locator("h1")).to_have_text("four")
    assert "four" in names(window.served)


def test_what_is_behind_is_told_so_and_can_be_done_again(window: Window) -> None:
    page = window.go("class=3")
    expect(page.locator(".cell").first).to_be_visible()
    page.route("**/api/version", lambda route: route.abort())  # the page does not hear of it
    Model(window.served.folder).rename("new-2", "by another")
    page.keyboard.press("n")
    page.keyboard.type("mine")
    page.keyboard.press("Enter")
    expect(toast(page)).to_contain_text("has changed")
    assert "mine" not in names(window.served)
    page.unroute("**/api/version")
    expect(page.locator(".banner")).to_have_count(0)
    toast(page).get_by_role("button", name="Try again").click()
    expect(page.locator("h1")).to_have_text("mine")
    assert names(window.served)[3:] == ["mine", "by another"]


def test_a_killed_server_is_told_and_found_again(window: Window, served: Served) -> None:
    page = window.go("class=3")
    expect(page.locator(".cell").first).to_be_visible()
    served.stop()
    expect(page.locator(".banner")).to_contain_text("not running")
    page.keyboard.press("n")
    page.keyboard.type("late")
    page.keyboard.press("Enter")
    expect(toast(page)).to_contain_text("Nothing was done")
    again = Served(served.folder)
    assert again.home == served.home
    expect(page.locator(".banner")).to_have_count(0)
    toast(page).get_by_role("button", name="Try again").click()
    expect(page.locator("h1")).to_have_text("late")
    again.stop()


def test_a_model_that_moves_away_and_comes_back(window: Window, tmp_path: Path) -> None:
    page, folder = window.page, window.served.folder
    expect(page.locator(".cards .card").first).to_be_visible()
    shutil.move(folder, tmp_path / "away")
    expect(page.locator(".banner")).to_contain_text("Put it back")
    shutil.move(tmp_path / "away", folder)
    expect(page.locator(".banner")).to_have_count(0)


def test_hostile_names_are_text_and_break_no_layout(browser: Browser, served: Served) -> None:
    model = Model(served.folder)
    for old, new in (("new-1", MARKUP), ("new-2", TURNED), ("0", LONG), ("1", "a" * 200)):
        model.rename(old, new)
    window = Window(browser, served)
    for width in (390, 1280):
        window.page.set_viewport_size({"width": width, "height": 800})
        for place in ("inbox", "classes", "class=3", "class=0", "compare=0,1", "map", "history"):
            page = window.go(place)
            page.wait_for_load_state("networkidle")
            sideways = page.evaluate("document.documentElement.scrollWidth")
            assert sideways <= width, (place, width, sideways)
    expect(window.go("class=3").locator("h1")).to_have_text(MARKUP)
    assert window.page.locator("img[src='x']").count() == 0
    assert [text for text in window.complaints if not EXPECTED.search(text)] == []
    window.context.close()


def test_read_only_offers_no_change(browser: Browser, served: Served) -> None:
    running = Served(served.folder, read_only=True)
    window = Window(browser, running)
    page = window.go("class=3")
    expect(page.locator(".bar .badge")).to_have_text("only looking")
    expect(page.locator(".cell").first).to_be_visible()
    expect(page.locator("main").get_by_role("button", name="Name")).to_have_count(0)
    page.keyboard.press("n")
    expect(page.get_by_role("dialog")).to_have_count(0)
    window.context.close()
    running.stop()


def test_contrast_is_enough_in_both_schemes(window: Window) -> None:
    script = """() => {
      const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255;
        return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
        return .2126 * r + .7152 * g + .0722 * b; };
      const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
      const behind = (node) => { for (; node; node = node.parentElement) {
        const c = parse(getComputedStyle(node).backgroundColor);
        if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
      const low = [];
      const texts = "h1, h2, h3, p, a, button, .soft, .note, .label, kbd, .count";
      for (const node of document.querySelectorAll(texts)) {
        if (!node.textContent.trim() || !node.offsetParent || node.disabled) continue;
        const a = light(parse(getComputedStyle(node).color).slice(0, 3)), b = light(behind(node));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) low.push([node.tagName, node.className, node.textContent, ratio]);
      }
      return low; }"""
    for scheme in ("light", "dark"):
        window.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for place in ("inbox", "class=3", "classes", "compare=3,4", "search", "history"):
            page = window.go(place)
            page.wait_for_load_state("networkidle")
            assert page.evaluate(script) == [], (scheme, place)


def test_keyboard_focus_is_seen_and_nothing_traps_it(window: Window) -> None:
    page = window.page
    expect(page.locator(".cards .card").first).to_be_visible()
    seen = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.textContent.slice(0, 30)"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
    assert len(seen) > 10


def test_scrolling_holds_no_more_than_is_in_sight(window: Window) -> None:
    page = window.go("class=3")
    page.set_viewport_size({"width": 390, "height": 400})
    expect(page.locator(".cell").first).to_be_visible()
    time.sleep(0.5)
    held = page.locator(".cell").count()
    total = int(page.locator("header.screen .soft").first.inner_text().split()[0])
    assert held < total
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.locator(f".cell[data-place='{total - 1}']")).to_be_visible()


def size_shown(page: Page) -> int:
    return int(page.locator("header.screen .soft").first.inner_text().split()[0])


def test_images_are_moved_by_mouse_and_rejected_by_mouse(window: Window) -> None:
    page = window.go("class=3")
    cells = page.locator(".cell")
    expect(cells.nth(3)).to_be_visible()
    before = size_shown(page)
    first = cells.nth(1).get_attribute("data-id")
    cells.nth(1).click()
    page.get_by_role("button", name="Move").click()
    page.get_by_role("option", name="new-2").click()
    expect(page.locator(".selection")).to_be_hidden()
    expect(page.locator(f".cell[data-id='{first}']")).to_have_count(0)
    assert size_shown(page) < before
    toast(page).get_by_role("button", name="Undo").click()
    expect(page.locator("header.screen .soft").first).to_contain_text(f"{before} images")
    cells.nth(0).click()
    second = cells.nth(0).get_attribute("data-id")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator(f".cell[data-id='{second}']")).to_have_count(0)


def test_images_are_moved_to_a_new_class_and_rejected_by_keyboard(window: Window) -> None:
    page = window.go("class=3")
    expect(page.locator(".cell").first).to_be_visible()
    for key in ("j", "x", "j", "j", "j", "Shift+X", "m"):
        page.keyboard.press(key)
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    expect(page.locator(".selection")).to_be_hidden()
    expect(toast(page)).to_contain_text("by keys")
    assert "by keys" in names(window.served)
    page.keyboard.press("u")
    expect(toast(page)).to_contain_text("taking back")
    for key in ("j", "x"):
        page.keyboard.press(key)
    chosen = page.locator(".cell[aria-selected='true']").get_attribute("data-id")
    page.keyboard.press("r")
    expect(page.locator(f".cell[data-id='{chosen}']")).to_have_count(0)


def test_a_class_is_confirmed_split_and_junked_by_mouse(window: Window) -> None:
    page = window.go("class=3")
    tools = page.locator("header.screen .buttons")
    tools.get_by_role("button", name="Confirm").click()
    expect(page.locator("header.screen .badge")).to_have_text("confirmed")
    tools.get_by_role("button", name="Split").click()
    expect(toast(page)).to_contain_text("splitting")
    toast(page).get_by_role("button", name="Undo").click()
    expect(toast(page)).to_contain_text("taking back of the splitting")
    tools.get_by_role("button", name="Junk").click()
    page.get_by_role("button", name="Junk it").click()
    expect(page.locator("h1")).to_have_text("This class is not there")
    assert "new-1" not in names(window.served)
    window.go("unsure")
    expect(page.locator(".cell").first).to_be_visible()


def test_a_class_is_confirmed_split_and_junked_by_keyboard(window: Window) -> None:
    page = window.go("class=3")
    expect(page.locator(".cell").first).to_be_visible()
    page.keyboard.press("c")
    expect(page.locator("header.screen .badge")).to_have_text("confirmed")
    page.keyboard.press("s")
    expect(toast(page)).to_contain_text("splitting")
    page.keyboard.press("u")
    expect(toast(page)).to_contain_text("taking back of the splitting")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("This class is not there")
    assert "new-1" not in names(window.served)


def test_the_inbox_is_worked_off_by_keyboard(window: Window) -> None:
    page = window.page
    expect(page.locator(".cards .card").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("c")
    expect(page.locator(".cards .card[data-kind='class']")).to_have_count(1)
    expect(page.locator(".cards .card").first).to_be_focused()  # the next question, at once
    page.keyboard.press("c")
    expect(page.locator("h1")).to_have_text("Nothing to decide")
