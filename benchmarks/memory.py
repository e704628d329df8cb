"""Train on a token bank that is larger than the memory allowed: ``python -m benchmarks.memory``.

A bank of random tokens is written through the real shelves, with the shape of ViT-B/16's. Then a
process of its own, which may not address more than `limit_gb` (RLIMIT_AS: anonymous memory and
mappings alike), opens it, checks every row and trains one epoch of stage 0 from it. Printed are
the sizes, what the process held in memory at most, and times.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.filesize import decimal

from goal.backbone.tail import zero_started_tail
from goal.backbone.tokens import Tokens
from goal.bank.readers import BankedTokens
from goal.bank.shelf import Shelf
from goal.common.progress import Reporter
from goal.data.images import DIGEST_BYTES
from goal.learning.trainer import StageTrainer
from goal.methods.base import LabelledStage
from goal.methods.registry import METHODS
from goal.settings.training import TrainingSettings

TOKENS, WIDTH, CLASSES = 197, 768, 50
VIEWS = ("clean", 0, 1)
CHUNK = 128


def shelves(folder: Path) -> list[Shelf]:
    """Open the bank's shelves."""
    shape = {"tokens": TOKENS, "width": WIDTH, "dtype": "float16"}
    return [Shelf(folder, {"trunk": "random", "view": view, **shape}, Reporter()) for view in VIEWS]


def digests(count: int) -> list[bytes]:
    """Name images that do not exist."""
    return [hashlib.sha256(str(n).encode()).digest()[:DIGEST_BYTES] for n in range(count)]


def write(folder: Path, gigabytes: float) -> int:
    """Fill the shelves until they hold so much; return the number of images."""
    bank = shelves(folder)
    images = int(gigabytes * 1e9 / bank[0].row_bytes / len(bank)) + 1
    names, rng = digests(images), torch.Generator().manual_seed(0)
    pool = torch.randn(CHUNK, TOKENS, WIDTH, generator=rng)
    for start in range(0, images, CHUNK):
        some = names[start : start + CHUNK]
        for shelf in bank:
            scale = 0.5 + torch.rand(len(some), 1, 1, generator=rng)
            tokens = pool[: len(some)] * scale
            shelf.append(Tokens(tokens, tokens[:, 0].contiguous()), some)
    return images


def train(folder: Path, images: int, limit_gb: float) -> dict[str, Any]:
    """Open, check and train under the limit; return the figures."""
    limit = int(limit_gb * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    began = time.perf_counter()
    bank, names = shelves(folder), digests(images)
    rows = [shelf.find(names, Reporter()) for shelf in bank]
    assert all(bool((found >= 0).all()) for found in rows)
    checked = time.perf_counter()
    tokens = BankedTokens([shelf.reader() for shelf in bank], rows)
    labels = torch.from_numpy(np.arange(images) % CLASSES)
    stage = LabelledStage(0, 0, CLASSES, 1, tokens, labels)
    rng = torch.Generator().manual_seed(0)
    tail = zero_started_tail(WIDTH, WIDTH, 4 * WIDTH, 12, rng)
    method = METHODS["goal"].method.build(
        METHODS["goal"].method.Settings.parse({"name": "goal"}), tail, CLASSES, rng
    )
    method.begin_stage(stage, rng)
    trainer = StageTrainer(method, stage, TrainingSettings(base_lr=0.01), rng)
    trainer.run(lambda _: None, Reporter())
    trained = time.perf_counter()
    method.end_stage(stage, rng)
    return {
        "open and check, s": round(checked - began, 1),
        "epoch, s": round(trained - checked, 1),
        "end of stage, s": round(time.perf_counter() - trained, 1),
        **status("VmPeak", "VmHWM", "RssAnon", "RssFile"),
    }


def status(*keys: str) -> dict[str, str]:
    """Read what the kernel says about this process's memory."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {key: decimal(int(lines[key].split()[0]) * 1024) for key in keys}


def main() -> None:
    """Write the bank, train from it in a process under the limit, print, and delete it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="an empty place for the bank")
    parser.add_argument("--gigabytes", type=float, default=8.2)
    parser.add_argument("--limit-gb", type=float, default=4.0)
    parser.add_argument("--images", type=int, help=argparse.SUPPRESS)  # set: be the limited process
    given = parser.parse_args()
    if given.images is not None:
        sys.stdout.write(json.dumps(train(given.folder, given.images, given.limit_gb)))
        return
    bank = given.folder / "memory-benchmark"
    try:
        images = write(bank, given.gigabytes)
        size = sum(path.stat().st_size for path in bank.rglob("tokens.bin"))
        command = [sys.executable, "-m", "benchmarks.memory", "--folder", str(bank)]
        command += ["--images", str(images), "--limit-gb", str(given.limit_gb)]
        # Each thread's malloc arena would reserve address space that is never used.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
        lines = {
            "bank": f"{decimal(size)}: {images:,} images x {len(VIEWS)} views",
            "limit (RLIMIT_AS)": f"{given.limit_gb} GB",
            **json.loads(done.stdout),
        }
        sys.stdout.write("".join(f"{key:>20}  {value}\n" for key, value in lines.items()))
    finally:
        shutil.rmtree(bank, ignore_errors=True)


if __name__ == "__main__":
    main()
