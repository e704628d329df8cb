"""Points 8 and 9: a stage of a million features, and a thousand new classes in it.

What `goal discover` does with features, shapes and counting included, in a process of its own:
seconds of wall clock and of processors, the peak of its memory, and how right it is.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.speed.planted import Planted, Used, accuracy, answers, command, write
from benchmarks.speed.timing import exponent

BEFORE_MS, BEFORE_KB = 1.9, 22  # per image at 20,000, before features were sampled (idle machine)
_EACH = 100  # labelled images per class
_EXACT = """
import sys
from goal.methods import goal_plus
from goal.methods.parts import discovery
everything = 10**9
goal_plus.LEARNED = everything
discovery.discover.__kwdefaults__["sample"] = everything
from goal.cli import main
main()
"""


@dataclass(frozen=True)
class Stage:
    """One discovery, and what it found.

    Attributes:
        images: Unlabelled images.
        used: What the command used.
        found: New classes.
        right: Percentage of images that are named right.
        best: The same for whoever knows what was planted.
    """

    images: int
    used: Used
    found: int
    right: float
    best: float

    @property
    def processor(self) -> float:
        """Seconds of processors, which other jobs on the machine disturb least."""
        return self.used.user + self.used.kernel

    def row(self, name: str) -> str:
        """A row of the table."""
        per_image = 1e3 * self.processor / self.images
        return (
            f"| {name} | {self.used.seconds:,.0f} | {self.processor:,.0f} | {per_image:.2f} | "
            f"{self.used.megabytes:,.0f} | {self.found} | {self.right:.2f} | {self.best:.2f} |"
        )


HEAD = [
    "| images | seconds | of processors | ms of these per image | peak memory, MB "
    "| new classes | All, % | best possible, % |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
]


def measure(planted: Planted, images: int, new: str, *, exact: bool = False) -> Stage:
    """Fit planted classes, and discover new ones beside them; `exact` learns from every image."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        truth, best = write(planted, images, _EACH, folder)
        command(folder, "fit", "labelled.npz", "--model", "m")
        words = ("discover", "week.npy", "--model", "m", "--new", new, "--unknown", "off")
        start = (sys.executable, "-c", _EXACT) if exact else None
        used = command(folder, *words, start=start)
        classes = answers(folder / "m")
    right = accuracy(classes, truth, planted.known)
    return Stage(images, used, len(np.unique(classes[classes >= planted.known])), right, best)


def growth(sizes: list[int], exact: int) -> list[str]:
    """A stage of growing size, 50 known and 10 new classes; and once from every image."""
    stages = {size: measure(Planted(), size, "auto") for size in sizes}
    lines = [*HEAD, *(stage.row(f"{size:,}") for size, stage in stages.items())]
    if exact in stages:
        every = measure(Planted(), exact, "auto", exact=True)
        lines += [
            every.row(f"{exact:,}, learned from every one"),
            "",
            f"Learned from every one of {exact:,} images All differs by "
            f"{every.right - stages[exact].right:+.2f} (goal: at most 0.3).",
        ]
    last = stages[sizes[-1]]
    per_image = 1e3 * last.processor / last.images
    lines += [
        "",
        f"At {last.images:,} an image takes {per_image:.2f} ms of a processor and "
        f"{1e3 * last.used.megabytes / last.images:.1f} KB of memory. A stage of 20,000 took "
        f"{BEFORE_MS} ms and {BEFORE_KB} KB before (idle machine): {per_image / BEFORE_MS:.2f} of "
        "its time (goal: a third).",
    ]
    large = [float(size) for size in sizes if size >= exact]
    if len(large) > 1:
        grows = exponent(large, [stages[int(size)].processor for size in large])
        lines.append(f"From {large[0]:,.0f} images on it grows with the exponent {grows:.2f}.")
    return lines


def thousand(images: int, known: int, new: int) -> list[str]:
    """Very many new classes, their number given."""
    stage = measure(Planted(known=known, new=new), images, str(new))
    return [*HEAD, stage.row(f"{images:,}")]
