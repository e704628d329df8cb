"""Point 4: how the step grows with batch, classes, tokens and views, and memory with images."""

import gc
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import torch
from matplotlib.figure import Figure

from benchmarks.speed.steps import our_steps
from benchmarks.speed.subjects import NEW, Size, cut, method_in_stage, noise_bank, random_model
from benchmarks.speed.timing import exponent, interleaved

MARKERS = ("o", "s", "^", "D", "v")


@dataclass(frozen=True)
class Curve:
    """One quantity as something grows."""

    grows: str
    unit: str
    sizes: list[int]
    values: list[float]

    @property
    def exponent(self) -> float:
        """Fitted power of the size."""
        return exponent([float(size) for size in self.sizes], self.values)


@dataclass(frozen=True)
class Point:
    """Settings of one measured step."""

    batch: int = 128
    known: int = 90
    side: int = 224
    views: int = 2


def step_ms(size: Size, points: list[Point], repeats: int, name: str) -> list[float]:
    """Milliseconds of our step, reading included, at each point; points take turns."""
    with TemporaryDirectory() as folder:
        tasks = {}
        for number, point in enumerate(points):
            shaped = replace(size, image=point.side)
            backbone = cut(random_model(replace(shaped, depth=2)))
            images = max(2, point.batch)
            place = Path(folder) / f"{point.side}-{point.views}"
            source = noise_bank(shaped, images, point.views, place)
            method = method_in_stage(name, backbone, images, point.known, NEW)
            tasks[str(number)], _ = our_steps(method, source, point.batch)
        return [1e3 * s for s in interleaved(tasks, repeats).values()]


def step_curves(size: Size, quick: bool, name: str = "happy") -> list[Curve]:
    """Measure the step along each direction from a common centre.

    By default Happy's, whose classes no simplex limits to the width of the embedding.
    """
    repeats = 1 if quick else 5
    centre = Point(batch=4, known=8, side=size.image) if quick else Point(batch=64)
    batches = [2, 4] if quick else [32, 64, 128, 256]
    classes = [10 + NEW, 20 + NEW] if quick else [10, 30, 100, 300, 1000]
    sides = [32, 64] if quick else [112, 160, 224, 320]
    views = [1, 2] if quick else [1, 2, 4, 8]
    known = [max(1, count - NEW) for count in classes]
    curves = [
        ("batch", batches, [replace(centre, batch=b) for b in batches]),
        ("classes", [k + NEW for k in known], [replace(centre, known=k) for k in known]),
        (
            "tokens",
            [replace(size, image=s).tokens for s in sides],
            [replace(centre, side=s) for s in sides],
        ),
        ("views in the bank", views, [replace(centre, views=v) for v in views]),
    ]
    return [
        Curve(grows, "ms per step", sizes, step_ms(size, points, repeats, name))
        for grows, sizes, points in curves
    ]


def memory_curve(size: Size, counts: list[int], batch: int) -> Curve:
    """Memory of the process's own while it trains on ever more images (not the page cache)."""
    backbone = cut(random_model(replace(size, depth=2)))
    values = []
    for count in counts:
        with TemporaryDirectory() as folder:
            source = noise_bank(size, count, 2, Path(folder))
            method = method_in_stage("goal", backbone, count)
            step, _ = our_steps(method, source, min(batch, count))
            highest = 0.0
            for _ in range(3):
                step()
                highest = max(highest, own_megabytes())
        values.append(highest)
        del source, method, step
        gc.collect()
    return Curve("images in the bank", "MB of the process's own memory", counts, values)


def own_megabytes() -> float:
    """Anonymous resident memory of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not report RssAnon, which the memory figures need")


def table(curves: list[Curve]) -> list[str]:
    """Values and exponents as Markdown."""
    lines = ["| grows | exponent | unit | measured |", "|---|---:|---|---|"]
    for curve in curves:
        pairs = ", ".join(
            f"{size}: {value:.0f}" for size, value in zip(curve.sizes, curve.values, strict=True)
        )
        lines.append(f"| {curve.grows} | {curve.exponent:.2f} | {curve.unit} | {pairs} |")
    return lines


def plot(curves: list[Curve], path: Path) -> None:
    """Draw every curve relative to its first point."""
    matplotlib.rcParams["svg.hashsalt"] = "goal"
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for curve, marker in zip(curves, MARKERS, strict=True):
        x = [size / curve.sizes[0] for size in curve.sizes]
        y = [value / curve.values[0] for value in curve.values]
        label = f"{curve.grows} (exponent {curve.exponent:.2f})"
        axes.loglog(x, y, marker=marker, label=label)
    axes.set_xlabel("size, relative to the smallest")
    axes.set_ylabel("step time or memory, relative to the smallest")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def measure(size: Size, quick: bool) -> list[Curve]:
    """All curves: four of the step, one of memory."""
    counts = [8, 16] if quick else [128, 256, 512, 1024]
    with torch.random.fork_rng(devices=[]):
        return [*step_curves(size, quick), memory_curve(size, counts, 4 if quick else 128)]
