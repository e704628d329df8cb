"""The report in a real browser: it responds, holds its layout, and asks nothing of the network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from goal.report.page import write_report
from tests.browser.conftest import Visit
from tests.report.runs import write_pictures, write_run

STRANGE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    ours = write_run(folder / "goal", [90.0, 80.0], dataset="digits")
    write_pictures(ours, STRANGE)
    floor = write_run(folder / "kmeans", [70.0, 60.0], dataset="digits", method="kmeans")
    write_pictures(floor, STRANGE)
    history = (floor / "history.jsonl").read_text().splitlines(keepends=True)
    (floor / "history.jsonl").write_text("".join(history[:3]))  # no steps at stage 1
    write_run(folder / "five", [90.0, 80.0, 70.0, 60.0, 50.0, 40.0])
    return write_report([folder], folder / "report.html")


@pytest.fixture
def visit(browser: Browser, report: Path) -> Iterator[Visit]:
    opened = Visit(browser, report, 1280)
    opened.page.locator("#benchmark").select_option(label="digits, 1 stage")
    yield opened
    opened.close()


def number(page: Page, name: str) -> str:
    card = page.locator(".number").filter(has=page.get_by_text(name, exact=True))
    return card.locator(".value").inner_text()


def test_loads_without_a_complaint_or_a_request(visit: Visit) -> None:
    page = visit.page
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.locator("#facts-body")).to_contain_text("seed 0")
    assert visit.complaints == []
    outside = [url for url in visit.requests if not url.startswith(("file:", "data:"))]
    assert outside == [] and sum(url.startswith("file:") for url in visit.requests) == 1


def test_curves_answer_the_pointer_and_the_keyboard(visit: Visit) -> None:
    page = visit.page
    chart = page.locator("#chart-all svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 15, box["y"] + box["height"] / 2)
    tip = page.locator("#chart-all .tip")
    expect(tip).to_contain_text("stage 1")
    expect(tip).to_contain_text("80.0")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("stage 0")


def test_methods_can_be_switched_off_and_on(visit: Visit) -> None:
    page = visit.page
    line = page.locator("#chart-all [data-series='kmeans']")
    chip = page.get_by_role("button", name="kmeans")
    expect(line).to_have_count(1)
    page.get_by_role("button", name="goal").hover()
    expect(line).to_have_css("opacity", "0.1")
    chip.click()
    expect(line).to_have_count(0)
    expect(chip).to_have_attribute("aria-pressed", "false")
    chip.click()
    expect(line).to_have_count(1)


def test_the_convention_changes_the_numbers_and_names_itself(visit: Visit) -> None:
    page = visit.page  # base is 10 above All, novel 20 below; seen 5 above, unseen 30 below
    assert number(page, "Base classes").startswith("90.0")
    assert number(page, "Novel classes").startswith("60.0")
    page.get_by_role("button", name="seen / unseen").click()
    assert number(page, "Seen classes").startswith("85.0")
    assert number(page, "Unseen classes").startswith("50.0")
    assert number(page, "Forgetting").startswith("5.0")  # 90 - 85
    expect(page.locator("#convention-note")).to_contain_text("seen/unseen")
    expect(page.locator("#comparison")).to_contain_text("Unseen")


def test_published_rows_stand_beside_ours_in_their_convention(visit: Visit) -> None:
    page = visit.page
    page.locator("#benchmark").select_option(label="cifar100, 5 stages")
    row = page.locator("#comparison tr.paper td")
    expect(row.nth(3)).to_have_text("72.1")  # average All
    expect(row.nth(4)).to_have_text("83.2")  # Old, printed as base
    expect(page.locator("#chart-old [data-series='goal, published']")).to_have_count(1)
    page.get_by_role("button", name="seen / unseen").click()
    expect(row.nth(4)).to_have_text("–")
    expect(page.locator("#chart-old [data-series='goal, published']")).to_have_count(0)
    expect(page.locator("#found")).to_be_hidden()  # this run kept no pictures


def test_pictures_are_made_when_scrolled_to(visit: Visit) -> None:
    page = visit.page
    pictures = page.locator("#gallery img")
    expect(pictures).to_have_count(0)
    page.locator("#gallery").scroll_into_view_if_needed()
    expect(page.locator("#gallery .card[data-loaded]")).to_have_count(2)
    assert (
        page.evaluate(
            "Promise.all([...document.querySelectorAll('#gallery img')].map(i => i.decode()))"
            ".then(all => all.length)"
        )
        > 0
    )


def test_names_with_markup_are_text(visit: Visit) -> None:
    page = visit.page
    page.locator("#gallery").scroll_into_view_if_needed()
    expect(page.locator("#gallery .card h3").first).to_have_text(STRANGE)
    assert visit.complaints == []
    assert page.locator("img[src='x']").count() == 0


def test_run_and_stage_can_be_chosen_and_maps_switch_space(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#map-note")).to_contain_text("embeddings")
    page.locator("#run").select_option(label="kmeans")
    assert number(page, "All").startswith("60.0")
    expect(page.locator("#map-note")).to_contain_text("features")  # nothing was aligned there
    page.get_by_role("button", name="stage 0", exact=True).click()
    assert number(page, "All").startswith("70.0")
    expect(page.locator("#found")).to_be_hidden()  # nothing is discovered at stage 0
    expect(page.locator("#map-note")).to_contain_text("embeddings")
    page.get_by_role("button", name="features", exact=True).click()
    expect(page.locator("#map-note")).to_contain_text("features")
    page.locator("#cosines canvas").hover(position={"x": 3, "y": 30})
    expect(page.locator("#cosines .tip")).to_contain_text("cosine 1.00")


def test_the_address_keeps_the_selection(browser: Browser, visit: Visit) -> None:
    page = visit.page
    page.locator("#run").select_option(label="kmeans")
    page.get_by_role("button", name="stage 0", exact=True).click()
    page.get_by_role("button", name="seen / unseen").click()
    page.get_by_role("button", name="features", exact=True).click()
    page.locator("#chips").get_by_role("button", name="goal").click()
    address = page.url
    again = Visit(browser, Path("/"), 1280)
    again.page.goto(address)
    expect(again.page.locator("#convention-note")).to_contain_text("seen/unseen")
    assert number(again.page, "All").startswith("70.0")  # kmeans at stage 0
    expect(again.page.locator("#benchmark option:checked")).to_have_text("digits, 1 stage")
    expect(again.page.locator("#map-note")).to_contain_text("features")
    expect(again.page.locator("#chart-all [data-series='goal']")).to_have_count(0)
    for hostile in ("#stage=99&run=<img src=x onerror=alert(1)>&convention=__proto__", "#stage=-1"):
        again.page.goto(address.partition("#")[0] + hostile)
        expect(again.page.locator("#convention-note")).to_contain_text("base/novel")
        assert number(again.page, "All").startswith("40.0")  # the first benchmark's last stage
    assert not [text for text in again.complaints if "alert" in text or "rror" in text]
    again.close()


def test_matrices_name_rows_and_columns(browser: Browser, report: Path) -> None:
    visit = Visit(browser, Path("/"), 1280)
    visit.context.add_init_script(
        "window.drawn = []; const old = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        "  window.drawn.push([this.canvas.getAttribute('aria-label'), text]);"
        "  return old.call(this, text, ...rest); };"
    )
    visit.page.goto(report.as_uri() + "#benchmark=digits%2C+1+stage")
    expect(visit.page.locator("#matrix canvas")).to_be_visible()
    drawn = visit.page.evaluate("window.drawn")
    for title in ("Confusion, class by class", "Cosines between class means"):
        for name in ("0", "1", "2", "3", "6"):
            assert drawn.count([title, name]) == 2  # at its row and at its column
    visit.close()


def test_a_sweep_shows_its_curve_at_whole_numbers(browser: Browser, tmp_path: Path) -> None:
    for value, shift in (("2", 0.0), ("1", 3.0), ("10", 5.0)):
        folder = tmp_path / "sweep" / f"method.refresh_every={value}" / "seed-0"
        assignment = (f"method.refresh_every={value}",)
        write_run(folder, [90.0, 60.0 + shift], dataset="digits", assignments=assignment)
    visit = Visit(browser, write_report([tmp_path], tmp_path / "report.html"), 1280)
    chart = visit.page.locator("#sweep-chart svg")
    expect(visit.page.locator("#sweep-title")).to_contain_text("method.refresh_every")
    below = chart.locator("text[text-anchor='middle']")
    assert below.all_text_contents() == ["1", "2", "10"]
    places = [float(node.get_attribute("x") or 0) for node in below.all()]
    assert (places[1] - places[0]) * 9 == pytest.approx(places[2] - places[0], abs=0.1)
    chart.focus()
    visit.page.keyboard.press("ArrowRight")
    tip = visit.page.locator("#sweep-chart .tip")
    expect(tip).to_contain_text("method.refresh_every = 1")
    expect(tip).to_contain_text("63.0")
    visit.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_nothing_sticks_out_sideways(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, report, width, scheme)
    page = visit.page
    page.locator("#benchmark").select_option(label="digits, 1 stage")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert (red < 100) == (scheme == "dark")
    visit.close()
