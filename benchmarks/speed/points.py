"""Points 6 to 11: features in the place of training, and what they cost."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.speed import clusters, kernel, million, onepass, runtimes
from benchmarks.speed.subjects import TINY, VIT_S, Size
from goal.backbone.features import load_embedder


@dataclass(frozen=True)
class Plan:
    """What to measure on.

    Attributes:
        quick: Tiny sizes, which mean nothing.
        photographs: Photographs of a fit.
        sizes: Unlabelled features of growing stages.
        root: Folder that holds CUB-200-2011; without it photographs are made.
        backbone: A transformers folder; without it a ViT-S/16 with random weights.
    """

    quick: bool = False
    photographs: int = 2000
    sizes: tuple[int, ...] = (20_000, 100_000, 1_000_000)
    root: Path | None = None
    backbone: str | None = None

    @property
    def size(self) -> Size:
        """The random backbone."""
        return TINY if self.quick else VIT_S

    @property
    def network(self) -> str:
        """What the backbone is, for people."""
        return Path(self.backbone).name if self.backbone else f"{self.size.name}, random weights"


def one_pass(plan: Plan) -> list[str]:
    """Point 6."""
    repeats = 1 if plan.quick else 2
    found = onepass.measure(plan.photographs, repeats, plan.root, plan.backbone, plan.size)
    kind = "photographs of CUB-200-2011" if plan.root else "generated JPEG files of that size"
    return [
        f"In one process, {kind}, {plan.network}; a fit begins with files and ends with a model "
        "folder, loading the backbone and writing the page included.",
        "",
        *onepass.table(found),
    ]


def a_million(plan: Plan) -> list[str]:
    """Point 7."""
    sizes = [600, 1200] if plan.quick else list(plan.sizes)
    return [
        "`goal discover` on planted features, without embedding: 50 known classes, 10 new ones, "
        "their number estimated, 384 dimensions, seed 0, in a process of its own.",
        "",
        *million.growth(sizes, 600 if plan.quick else 100_000),
    ]


def a_thousand(plan: Plan) -> list[str]:
    """Point 8."""
    images, known, new = (400, 4, 6) if plan.quick else (plan.sizes[-1], 50, 1000)
    return [
        f"{known} known classes and {new:,} new ones, their number given; else as point 7.",
        "",
        *million.thousand(images, known, new),
    ]


def on_cpu(plan: Plan) -> list[str]:
    """Point 9."""
    images, repeats = (2, 1) if plan.quick else (8, 5)
    with TemporaryDirectory() as folder:
        name = plan.backbone or onepass.random_backbone(Path(folder), plan.size)
        rows = runtimes.measure(load_embedder(name), plan.network, images, repeats)
    return [
        f"Single precision, {images} crops at a time. Offered would be what is 1.3 times as fast "
        "at a cosine of 0.999.",
        "",
        *runtimes.HEAD,
        *rows,
    ]


def in_the_kernel(plan: Plan) -> list[str]:
    """Point 10."""
    batch, images, steps = (4, 8, 2) if plan.quick else (128, 256, 12)
    plain, ours = kernel.shares(plan.size, batch, images, steps)
    return [
        f"Steps of `goal` in an incremental stage, {plan.size.name} tokens, {batch} images each: "
        f"{plain:.1f}% of the processor time is the kernel's if memory is given back in every "
        f"step, **{ours:.1f}%** as training keeps it (goal: under 2%).",
    ]


def k_means(plan: Plan) -> list[str]:
    """Point 11."""
    cases = [(300, 5)] if plan.quick else [(20_000, 10), (20_000, 200)]
    rows = [row for case in cases for row in clusters.measure(*case, 1 if plan.quick else 3)]
    return [
        "96 dimensions, seed 0, one thread, the same k-means++ start, 100 rounds at most.",
        "",
        *clusters.HEAD,
        *rows,
    ]


POINTS: dict[str, tuple[str, Callable[[Plan], list[str]]]] = {
    "6": ("`goal fit` against one plain pass", one_pass),
    "7": ("A million features", a_million),
    "8": ("A thousand new classes", a_thousand),
    "9": ("The backbone on the CPU", on_cpu),
    "10": ("Training in the kernel", in_the_kernel),
    "11": ("K-means", k_means),
}
