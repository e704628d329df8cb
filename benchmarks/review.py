"""How quick `goal review` is in a browser: ``python -m benchmarks.review``.

A model is planted: 100,000 features of 300 classes, 270 of them discovered, and a thumbnail for
each image, as they are once made. The page is opened in Chromium; printed are the time to its
first paint and to all pictures in sight, to a class and to its last image, and from the key to
what an action changed, each the median of several tries with the slowest beside it.
"""

import argparse
import base64
import hashlib
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from goal.common.arrays import IntArray
from goal.data.own_images import ImageSet
from goal.evaluation.chosen import MAX_CLASSES, PER_ROW
from goal.features.given import FeatureImages
from goal.features.origin import GIVEN, Origin
from goal.features.store import FeatureStore
from goal.models.model import Model
from goal.models.piles import IMAGES
from goal.models.settings import model_settings
from goal.pages.galleries import thumbnail
from goal.review.thumbnails import FOLDER, SIDE
from tests.browser.conftest import ARGUMENTS, PATIENCE

KNOWN, EACH, WIDTH, TRIES, SHADES = 30, 40, 384, 5, 200
QUICK = {
    "discovery_dimensions": 48,
    "pretrained_dimensions": 64,
    "shape_rank": 8,
}


def plant(folder: Path, images: int, classes: int) -> None:
    """Write a model folder of so many images and classes, with their thumbnails.

    What the first stage learned is real; the second is written as `goal discover` would write it,
    with the memory of a model that was given all classes with labels.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, WIDTH)).astype(np.float32)
    every = np.repeat(np.arange(classes), EACH)
    truth = np.concatenate([every, rng.integers(0, classes, images - len(every))])
    features = centres[truth] + 0.45 * rng.normal(size=(images, WIDTH)).astype(np.float32)
    digests = [hashlib.sha256(str(n).encode()).digest()[:16] for n in range(images)]
    origin = Origin(backbone=GIVEN, fingerprint=f"given-{WIDTH}", reads=GIVEN, width=WIDTH)
    names = [f"week/{n:06d}.jpg" for n in range(images)]
    held = FeatureImages(features.astype(np.float16), digests, origin)
    everything = ImageSet(held, names, list(range(images)), [])
    settings = model_settings("goal-plus", GIVEN, 0, settings={"method": QUICK})
    labels = [f"known {number}" for number in range(classes)]
    first = KNOWN * EACH
    with tempfile.TemporaryDirectory() as place:
        whole = Model(Path(place) / "whole")
        whole.fit(everything.chosen(range(len(every))), every, labels, settings)
        state = whole.store.state(0)
        model = Model(folder)
        model.fit(everything.chosen(range(first)), every[:first], labels[:KNOWN], settings)
    discovered(model, names[first:], digests[first:], truth[first:], state)
    FeatureStore.ready(folder / "features", origin).append(names, digests, held.features)
    draw(folder, digests)


def discovered(
    model: Model, names: list[str], digests: list[bytes], ids: IntArray, state: dict[str, Any]
) -> None:
    """Write a stage in which so many classes were found."""
    rng = np.random.default_rng(2)
    sure = rng.uniform(0.5, 1, len(ids))
    columns = {
        "file": names,
        "path": pyarrow.array([None] * len(names), pyarrow.string()),
        "digest": pyarrow.array(digests, pyarrow.binary()),
        "class_id": ids,
        "confidence": sure,
        "second": (ids + 1) % (ids.max() + 1),
        "second_confidence": 1 - sure,
    }
    count = int(ids.max()) + 1 - KNOWN
    sizes = {str(id): int(number) for id, number in enumerate(np.bincount(ids)) if number}
    record = model.records[0].model_copy(
        update={
            "kind": "discover",
            "step": 1,
            "index": 1,
            "num_known": KNOWN,
            "names": [f"new-{number}" for number in range(1, count + 1)],
            "vertices": [None] * count,
            "sizes": sizes,
            "images": len(names),
        }
    )
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), table)
    contents = {IMAGES: table.getvalue(), "gallery.json": gallery(KNOWN, count)}
    with model.changing():
        model.store.commit(record, contents, state)


def gallery(first: int, count: int) -> bytes:
    """What a stage keeps for the model's page: twelve small pictures of each class."""
    rng = np.random.default_rng(3)
    rows, thumbnails = {}, {}
    for id in range(first, first + min(count, MAX_CLASSES)):
        keys = [str(100 * id + place) for place in range(2 * PER_ROW)]
        named = [[key, f"{key}.jpg (99%)"] for key in keys]
        rows[str(id)] = {"most": named[:PER_ROW], "least": named[PER_ROW:]}
        for key in keys:
            noise = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
            thumbnails[key] = base64.b64encode(thumbnail(noise.resize((64, 64)))).decode()
    return json.dumps({"classes": rows, "thumbnails": thumbnails}).encode()


def draw(folder: Path, digests: list[bytes]) -> None:
    """Thumbnails of some kinds of noise, one for each image."""
    rng = np.random.default_rng(1)
    kinds = []
    for _ in range(SHADES):
        coarse = Image.fromarray(rng.integers(0, 255, (6, 6, 3), dtype=np.uint8))
        kinds.append(thumbnail(coarse.resize((SIDE, SIDE)), SIDE))
    for number, digest in enumerate(digests):
        path = folder / FOLDER / digest.hex()[:2] / f"{digest.hex()}.webp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kinds[number % SHADES])


def timed(page: Page, begin: Callable[[], object], there: str, more: object = None) -> float:
    """Milliseconds from an action until a condition holds in the page, told by the page itself."""
    page.evaluate("window.began = performance.now()")
    begin()
    page.wait_for_function(f"(more) => ({there})", arg=more, polling="raf")
    return float(page.evaluate("performance.now() - window.began"))


SEEN = """[...document.querySelectorAll('main img')].filter((i) => {
  const b = i.getBoundingClientRect(); return b.top < innerHeight && b.bottom > 0;
})"""
DRAWN = f"{SEEN}.length > 20 && {SEEN}.every((i) => i.complete && i.naturalWidth)"


def first_paint(page: Page, address: str) -> dict[str, float]:
    """Milliseconds from asking for the page to its first content, its cards and its pictures."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function(DRAWN, polling="raf")
    pictures = float(page.evaluate("performance.now()"))
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return {"first paint": float(page.evaluate(paint)), "all pictures in sight": pictures}


def actions(page: Page, home: str) -> dict[str, float]:
    """Milliseconds of each action on a class, as a person at the keyboard sees them."""
    found: dict[str, float] = {}

    def note(what: str, begin: Callable[[], object], there: str, more: object = None) -> None:
        found[what] = timed(page, begin, there, more)

    page.goto(f"{home}#classes")
    page.wait_for_selector(".list li")
    page.keyboard.press("j")
    note("a class, all pictures in sight", lambda: page.keyboard.press("Enter"), DRAWN)
    note("its last image", lambda: page.evaluate("scrollTo(0, 1e9)"), DRAWN)
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("n")
    page.keyboard.type(f"named {time.monotonic_ns()}")
    title = page.locator("main h1").inner_text()
    other = "document.querySelector('main h1').textContent !== more"
    note("naming it", lambda: page.keyboard.press("Enter"), other, title)
    title = page.locator("main h1").inner_text()
    note("undoing that", lambda: page.keyboard.press("u"), other, title)
    total = "document.querySelector('header.screen .soft').textContent !== more"
    state = page.evaluate("fetch('/api/state').then((r) => r.json())")
    if {"move", "reject"} <= set(state["can"]):
        teach(page, note, total)
    return found


def teach(page: Page, note: Callable[..., None], total: str) -> None:
    """Move and reject ten images."""
    for what, key in (("moving ten images", "m"), ("rejecting ten images", "r")):
        page.keyboard.press("j")
        page.keyboard.press("x")
        for _ in range(9):
            page.keyboard.press("j")
        page.keyboard.press("Shift+X")
        before = page.locator("header.screen .soft").first.inner_text()
        if key == "m":
            page.keyboard.press("m")
            page.keyboard.type("known 7")
        note(
            what,
            lambda press=key: page.keyboard.press("Enter" if press == "m" else press),
            total,
            before,
        )
        before = page.locator("header.screen .soft").first.inner_text()
        note(f"undoing the {what}", lambda: page.keyboard.press("u"), total, before)


def server(folder: Path, cache: Path) -> tuple[subprocess.Popen[str], str]:
    """`goal review` of a folder, and its address."""
    command = [sys.executable, "-m", "goal", "review", "--model", str(folder)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "GOAL_CACHE": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if address := re.search(r"http://\S+", line):
            return process, address[0]
    raise SystemExit("goal review did not start.")


def measure(folder: Path, cache: Path) -> list[dict[str, float]]:
    """Open the page several times, and act on it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    process, address = server(folder, cache)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            page.wait_for_function(DRAWN, polling="raf")
            home = address.partition("?")[0]
            return [{**first_paint(page, home), **actions(page, home)} for _ in range(TRIES)]
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Plant a model, or take one that was planted before, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="plant the model here, or take it from here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = (given.keep or Path(place)) / "model"
        if not folder.exists():
            plant(folder, given.images, given.classes)
        found = measure(folder, Path(place) / "cache")
    load = os.getloadavg()[0]
    lines = [f"{given.images:,} images, {given.classes} classes; load {load:.1f}; milliseconds"]
    lines += ["", "| | median | slowest |", "|---|---:|---:|"]
    for key in found[0]:
        times = [one[key] for one in found]
        lines.append(f"| {key} | {statistics.median(times):.0f} | {max(times):.0f} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
