"""How many images a second `goal serve` answers: ``python -m benchmarks.serve``.

A model of digits is served by a process of its own; clients send it images one by one, 1, 8 and 64
at a time. Beside it: the plain backbone, which gets the same images decoded, in full batches.
"""

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from goal.backbone.features import load_embedder
from goal.common.progress import Reporter
from goal.data.decoding import decode
from goal.data.transforms import prepared
from goal.features.embed import BATCH, run
from goal.models.demo import make_demo_model

CLIENTS = (1, 8, 64)


def plain(files: list[Path], backbone: str) -> float:
    """Images a second through the backbone alone, decoded before."""
    embedder = load_embedder(backbone)
    crops = np.stack([prepared(decode(path), embedder.preprocessing) for path in files])
    run(embedder, crops[:BATCH])
    began = time.perf_counter()
    for start in range(0, len(crops), BATCH):
        run(embedder, crops[start : start + BATCH])
    return len(crops) / (time.perf_counter() - began)


def served(files: list[Path], model: Path, clients: int) -> float:
    """Images a second through the server, from so many clients at a time."""
    command = [sys.executable, "-m", "goal", "serve", "--model", str(model)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        found = next(m for line in process.stdout if (m := re.search(r"http://([\d.:]+)/", line)))
        contents = [path.read_bytes() for path in files]
        ask(found[1], contents[:8])
        parts = [contents[number::clients] for number in range(clients)]
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(lambda part: ask(found[1], part), parts))
        return len(contents) / (time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()


def ask(host: str, contents: list[bytes]) -> None:
    """Send images one after the other over one connection."""
    connection = http.client.HTTPConnection(host)
    for content in contents:
        connection.request("POST", "/predict", content, {"content-type": "image/png"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"The server answered {answer.status}: {answer.read()!r}")
        answer.read()
    connection.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=512)
    wanted = parser.parse_args().images
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_demo_model(folder / "model", folder / "images", 0, Reporter())
        files = sorted((folder / "images").rglob("*.png"))
        files = (files * (wanted // len(files) + 1))[:wanted]
        lines = ["| | images a second |", "|---|---:|"]
        lines.append(f"| plain backbone, batches of {BATCH} | {plain(files, 'digits-vit'):.0f} |")
        for clients in CLIENTS:
            speed = served(files, folder / "model", clients)
            lines.append(f"| goal serve, {clients} at a time | {speed:.0f} |")
    sys.stdout.write("\n".join(lines) + f"\n\nload {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
