"""Take the pictures of `goal review` for the README and the guide: `make screenshot`."""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, PATIENCE

GAP = 24
LOADED = "[...document.querySelectorAll('main img')].every((i) => i.complete)"


def shot(page: Page, home: str, place: str, size: tuple[int, int], scheme: str) -> Image.Image:
    """One screen at one size."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"{home}#{place}")
    page.wait_for_selector("main img")
    page.wait_for_timeout(1000)
    page.wait_for_function(LOADED)
    if place.startswith("class"):
        page.locator(".cell").nth(2).click()
        page.locator(".cell").nth(5).click(modifiers=["Shift"])
        page.mouse.move(0, 0)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def beside(shots: list[Image.Image]) -> Image.Image:
    """Pictures side by side."""
    width = sum(one.width for one in shots) + GAP * (len(shots) - 1)
    whole = Image.new("RGB", (width, max(one.height for one in shots)), "white")
    x = 0
    for one in shots:
        whole.paste(one, (x, 0))
        x += one.width + GAP
    return whole


def server(model: Path) -> tuple[subprocess.Popen[str], str]:
    """`goal review` of a model, and its address."""
    command = [sys.executable, "-m", "goal", "review", "--model", str(model)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if address := re.search(r"http://\S+", line):
            return process, address[0]
    sys.exit("goal review did not start")


def main() -> None:
    """Photograph the inbox and a class, on a light desktop and a dark phone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--class", dest="id", type=int, default=5)
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Chromium: apt-get install chromium")
    process, address = server(given.model)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=list(ARGUMENTS), timeout=PATIENCE
            )
            page = browser.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            home = address.partition("?")[0]
            for name, place in (("inbox", "inbox"), ("class", f"class={given.id}")):
                shots = [shot(page, home, place, (1200, 720), "light")]
                shots.append(shot(page, home, place, (390, 720), "dark"))
                page.goto(f"{home}#classes")
                path = given.folder / f"review-{name}.png"
                picture = beside(shots).quantize(256, dither=Image.Dither.NONE)
                picture.save(path, optimize=True)
            browser.close()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
