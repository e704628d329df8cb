"""Point 5: what limits the step now: matrix products, and moving tokens."""

import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from benchmarks.speed.steps import our_steps
from benchmarks.speed.subjects import Size, cut, method_in_stage, noise_bank, random_model
from benchmarks.speed.timing import Task, copy_task, interleaved, product_task
from goal.methods.parts.parametric import Parametric


@dataclass(frozen=True)
class Limits:
    """Seconds, operations and bytes of one step, and the machine's limits."""

    step: float
    projector: float
    reading: float
    peak: float  # operations per second of a large product
    bandwidth: float  # bytes copied per second
    projector_work: float
    tail_work: float
    token_bytes: float

    @property
    def bound(self) -> float:
        """Seconds of the projector's products at the peak plus tokens at copy bandwidth."""
        return self.projector_work / self.peak + self.token_bytes / self.bandwidth

    @property
    def whole_bound(self) -> float:
        """The same with the tail's products."""
        return self.bound + self.tail_work / self.peak


def linear_work(module: nn.Module, rows: int) -> float:
    """Operations of forward and backward of all linear layers on so many rows."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return 6.0 * rows * sum(layer.weight.numel() for layer in layers if layer.weight.requires_grad)


def attention_work(size: Size, rows: int) -> float:
    """Operations of scoring and averaging tokens, forward and backward."""
    return 4 * 2.0 * rows * size.heads * size.tokens * size.width


def measure(
    size: Size, name: str, batch: int, images: int, repeats: int, product: int, megabytes: int
) -> Limits:
    """Measure the step, its two large parts, and the machine, interleaved."""
    backbone = cut(random_model(size))
    method = method_in_stage(name, backbone, images)
    with TemporaryDirectory() as folder:
        source = noise_bank(size, images, 4, Path(folder))
        step, _ = our_steps(method, source, batch)
        rng = torch.Generator().manual_seed(5)
        some = torch.arange(batch)
        pair = source.pair(some, rng)
        kept = sum(tokens.normalised.nbytes + tokens.cls.nbytes for tokens in pair)
        seconds = interleaved(
            {
                "step": step,
                "projector": _projector_task(method, 2 * batch),
                "reading": lambda: source.pair(some, rng),
                "product": product_task(product),
                "copy": copy_task(megabytes),
            },
            repeats,
        )
    return Limits(
        step=seconds["step"],
        projector=seconds["projector"],
        reading=seconds["reading"],
        peak=2.0 * product**3 / seconds["product"],
        bandwidth=1e6 * megabytes / seconds["copy"],
        projector_work=linear_work(method.projector, 2 * batch),
        tail_work=linear_work(method.tail, 2 * batch) + attention_work(size, 2 * batch),
        token_bytes=float(kept),
    )


def _projector_task(method: Parametric, rows: int) -> Task:
    projector = copy.deepcopy(method.projector)
    features = torch.randn(
        rows, method.tail.width, generator=torch.Generator().manual_seed(6)
    ).requires_grad_(True)

    def work() -> None:
        projector.zero_grad()
        projector(features).sum().backward()

    return work


def report(name: str, limits: Limits) -> list[str]:
    """The figures of one backbone."""
    m = limits
    achieved = m.projector_work / m.projector
    read = m.token_bytes / m.reading
    return [
        f"**{name}**",
        "",
        f"- projector: {m.projector_work / 1e9:.1f} GFLOP in {1e3 * m.projector:.0f} ms = "
        f"{achieved / 1e9:.0f} GFLOP/s, {100 * achieved / m.peak:.0f}% of the measured peak of "
        f"{m.peak / 1e9:.0f} GFLOP/s",
        f"- token reading: {m.token_bytes / 1e6:.0f} MB in {1e3 * m.reading:.0f} ms = "
        f"{read / 1e9:.1f} GB/s, {100 * read / m.bandwidth:.0f}% of the measured copy bandwidth of "
        f"{m.bandwidth / 1e9:.1f} GB/s",
        f"- sum of these two bounds: {1e3 * m.bound:.0f} ms; the step takes "
        f"{1e3 * m.step:.0f} ms, **{m.step / m.bound:.2f}x** (goal 1.5x)",
        f"- with the tail's own products ({m.tail_work / 1e9:.1f} GFLOP) in the bound: "
        f"{1e3 * m.whole_bound:.0f} ms, {m.step / m.whole_bound:.2f}x; a step that did nothing but "
        f"these products and this reading, at those speeds, would be at "
        f"{m.whole_bound / m.bound:.2f}x of the two bounds above",
        "",
    ]
