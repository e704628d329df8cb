"""Take the README's picture of the report: `make screenshot`."""

import argparse
import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, PATIENCE, Visit

HEIGHT, GAP = 1000, 24


def main() -> None:
    """Photograph a report on a light desktop and a dark phone, side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=list(ARGUMENTS), timeout=PATIENCE
        )
        shots = []
        for width, scheme, section in ((1280, "light", None), (390, "dark", "#found")):
            visit = Visit(browser, given.report.resolve(), width, scheme)
            visit.page.set_viewport_size({"width": width, "height": HEIGHT})
            if section:
                visit.page.eval_on_selector(section, "e => e.scrollIntoView()")
                visit.page.wait_for_selector("#gallery .card[data-loaded] img")
                visit.page.wait_for_timeout(500)
            shots.append(Image.open(io.BytesIO(visit.page.screenshot())).convert("RGB"))
            visit.close()
        browser.close()
    width = sum(shot.width for shot in shots) + GAP
    whole = Image.new("RGB", (width, HEIGHT), "white")
    whole.paste(shots[0], (0, 0))
    whole.paste(shots[1], (shots[0].width + GAP, 0))
    given.picture.parent.mkdir(parents=True, exist_ok=True)
    whole.quantize(256, dither=Image.Dither.NONE).save(given.picture, optimize=True)


if __name__ == "__main__":
    main()
