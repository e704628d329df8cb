"""Measuring: medians of interleaved repeats, the machine's own limits, and fitted exponents."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

Task = Callable[[], object]


def interleaved(tasks: Mapping[str, Task], repeats: int) -> dict[str, float]:
    """Median seconds of each task; every repeat runs all of them in turn, after a warm-up."""
    return {name: statistics.median(times) for name, times in rounds(tasks, repeats).items()}


def rounds(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[float]]:
    """Seconds of each task in every repeat, for ratios of neighbours in time."""
    for task in tasks.values():
        task()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def product_task(size: int) -> Task:
    """Multiply two square float32 matrices: ``2 size^3`` operations."""
    left, right = torch.ones(size, size), torch.ones(size, size)
    return lambda: left @ right


def copy_task(megabytes: int) -> Task:
    """Copy a block of memory that is far larger than any cache."""
    source = torch.ones(megabytes * 250_000)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def exponent(sizes: list[float], values: list[float]) -> float:
    """Slope of a straight line through the logarithms: 1 is linear growth, 0 is none."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def machine() -> list[str]:
    """Lines that say what the figures were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    return [
        f"Machine: {model}, {torch.get_num_threads()} threads, {platform.system()}.",
        f"Versions: Python {platform.python_version()}, {packages}; "
        f"vector instructions {torch.backends.cpu.get_cpu_capability()}.",
    ]
