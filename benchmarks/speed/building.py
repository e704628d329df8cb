"""Point 3: building the bank, against a plain forward pass of the same trunk."""

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed.subjects import Size, cut, random_images, random_model
from benchmarks.speed.timing import interleaved, rounds
from goal.backbone.trunk import Trunk
from goal.bank.bank import BankSettings, TokenBank
from goal.data.transforms import TransformSettings, clean


@dataclass(frozen=True)
class BuildTimes:
    """Seconds per view, the whole model's for comparison, and building over plain passes."""

    plain: float
    banked: float
    full: float
    ratio: float


def transform_of(size: Size) -> TransformSettings:
    """The published transform, in proportion."""
    return TransformSettings(image_size=size.image, resize=size.image * 256 // 224)


def crops(size: Size, count: int) -> Tensor:
    """Cut random images to size: what a plain pass is given ready-made."""
    images, transform = random_images(count), transform_of(size)
    return torch.from_numpy(np.stack([clean(images.image(i), transform) for i in range(count)]))


def plain_pass(trunk: Trunk, pixels: Tensor, batch: int) -> None:
    """Run the trunk and keep nothing."""
    for part in pixels.split(batch):
        trunk(part)


def measure(size: Size, images: int, batch: int, repeats: int) -> BuildTimes:
    """Measure a build of two views per image (decode, crop, write, checksums) and both passes."""
    model = random_model(size)
    trunk = cut(model).trunk
    pixels = crops(size, images).repeat(2, 1, 1, 1)
    source, ids = random_images(images), np.arange(images)
    scaled = torch.rand(images, 3, size.image, size.image)
    with TemporaryDirectory() as folder:
        banks = iter(
            [
                TokenBank(trunk, transform_of(size), _settings(Path(folder) / str(n), batch))
                for n in range(repeats + 1)
            ]
        )
        with torch.no_grad():
            seconds = rounds(
                {
                    "plain": lambda: plain_pass(trunk, pixels, batch),
                    "banked": lambda: next(banks).open(source, ids, augmented_views=True),
                    "full": lambda: [model(pixel_values=part) for part in scaled.split(batch)],
                },
                repeats,
            )
    pairs = zip(seconds["banked"], seconds["plain"], strict=True)
    return BuildTimes(
        plain=median(seconds["plain"]) / len(pixels),
        banked=median(seconds["banked"]) / len(pixels),
        full=median(seconds["full"]) / images,
        ratio=median(banked / plain for banked, plain in pairs),
    )


def _settings(folder: Path, batch: int) -> BankSettings:
    return BankSettings(views=1, folder=str(folder), batch_size=batch)


# -- settings that might help ----------------------------------------------------------------------


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute on so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def settings_table(size: Size, batches: list[int], repeats: int, compiled: bool) -> list[str]:
    """Time of a plain pass per view under different settings."""
    trunk = cut(random_model(size)).trunk
    pixels = crops(size, max(batches))
    ways: dict[str, Any] = {
        f"batch {batch}": lambda batch=batch: plain_pass(trunk, pixels, batch) for batch in batches
    }
    best = batches[len(batches) // 2]
    last = copy.deepcopy(trunk)
    model: Any = last.model
    model.to(memory_format=torch.channels_last)
    pixels_last = pixels.contiguous(memory_format=torch.channels_last)
    ways[f"batch {best}, channels_last"] = lambda: plain_pass(last, pixels_last, best)

    def one_thread() -> None:
        with threads(1):
            plain_pass(trunk, pixels, best)

    ways[f"batch {best}, one thread"] = one_thread
    if compiled:
        fast = copy.deepcopy(trunk)
        fast.model.compile()
        ways[f"batch {best}, torch.compile"] = lambda: plain_pass(fast, pixels, best)
    seconds = interleaved(ways, repeats)
    lines = ["| setting | ms per view |", "|---|---:|"]
    lines += [f"| {name} | {1e3 * s / len(pixels):.1f} |" for name, s in seconds.items()]
    return [*lines, "", _normalisation(trunk, pixels, 1e3 * min(seconds.values()) / len(pixels))]


def _normalisation(trunk: Trunk, pixels: Tensor, pass_ms: float) -> str:
    """What scaling the pixels costs, and what fusing it into one multiplication would save."""
    scale, shift = 1 / (255 * trunk.std), trunk.mean / trunk.std

    def repeat(work: Any) -> float:
        began = time.perf_counter()
        for _ in range(3):
            work()
        return (time.perf_counter() - began) / 3 / len(pixels) * 1e3

    plain = repeat(lambda: (pixels.float() / 255 - trunk.mean) / trunk.std)
    fused = repeat(lambda: torch.addcmul(-shift, pixels.float(), scale))
    return (
        f"Scaling pixels takes {plain:.2f} ms per view, as one fused multiply-add {fused:.2f} ms; "
        f"the fastest pass takes {pass_ms:.1f} ms."
    )


def table(times: dict[str, BuildTimes]) -> list[str]:
    """Ratios as Markdown."""
    lines = [
        "| model | plain pass of the trunk, ms per view | bank building | **ratio** |",
        "|---|---:|---:|---:|",
    ]
    for name, t in times.items():
        cells = f"{1e3 * t.plain:.1f} | {1e3 * t.banked:.1f} | **{t.ratio:.2f}x**"
        lines.append(f"| {name} | {cells} |")
    return lines
