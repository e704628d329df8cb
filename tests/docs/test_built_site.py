"""The built site, opened from disk in a browser: nothing comes from elsewhere, and search works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Visit
from website.check import problems
from website.pages import ROOT

pytestmark = [
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs comes with `make docs`"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_link_leads_somewhere(site: Path) -> None:
    assert problems(site) == []
    assert len(list(site.rglob("*.html"))) > 80


@pytest.fixture
def visit(site: Path, browser: Browser) -> Iterator[Visit]:
    opened = Visit(browser, site / "index.html", 1280)
    yield opened
    opened.close()


def foreign(visit: Visit) -> list[str]:
    """What was asked for that is not a file of the site, and what went wrong."""
    return [url for url in visit.requests if not url.startswith(("file:", "data:"))]


def test_it_opens_from_disk_and_search_works(visit: Visit) -> None:
    page = visit.page
    assert "GOAL" in page.title()
    page.locator("input[name=query]").press_sequentially("ruler")
    page.wait_for_selector(".md-search-result__item a")
    found = page.locator(".md-search-result__item").all_inner_texts()
    assert any("ruler" in text.lower() for text in found)
    page.locator(".md-search-result__item a").first.click()
    page.wait_for_url(lambda url: not url.split("#")[0].split("?")[0].endswith("index.html"))
    assert page.url.startswith("file://")
    assert foreign(visit) == [] and visit.complaints == []


def test_pictures_are_there(visit: Visit, site: Path) -> None:
    for name in ("index", "concepts/task", "concepts/simplex", "architecture"):
        visit.page.goto((site / f"{name}.html").as_uri())
        script = "all => all.map(one => one.naturalWidth)"
        sizes = visit.page.eval_on_selector_all("article img", script)
        assert sizes and min(sizes) > 0, name
    assert foreign(visit) == [] and visit.complaints == []
