"""Measure everything and write the report.

    python -m benchmarks.speed [--points 1,2,...,11] [--quick] [--compile] [--out FOLDER]
        [--data-root FOLDER] [--backbone FOLDER] [--photographs 2000] [--sizes 20000,1000000]

Every figure is a median of repeats in which reference and ours take turns. Points that are
measured again take the place of the old ones on the page.
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter
from rich.console import Console

from benchmarks.speed import building, experiment, growth, limits, precision, shares, steps, timing
from benchmarks.speed.page import merged
from benchmarks.speed.points import POINTS, Plan
from benchmarks.speed.subjects import TINY, VIT_B, VIT_S, Size
from goal.storage.files import write_text

ALL = "1,2,3,4,5,6,7,8,9,10,11"
BUSY = ", while other jobs ran on the machine: times of the clock are too long, ratios rough."
console = Console()


class Study:
    """What is measured, how thoroughly, and what was found."""

    def __init__(self, quick: bool, compiled: bool) -> None:
        self.quick = quick
        self.compiled = compiled
        self.sizes: tuple[Size, ...] = (TINY,) if quick else (VIT_S, VIT_B)
        self.lines: list[str] = []
        self.steps: list[steps.StepTimes] = []
        self.builds: dict[str, building.BuildTimes] = {}

    def add(self, *lines: str) -> None:
        """Show lines and keep them for the report."""
        self.lines += lines
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def plan(self, size: Size) -> steps.Plan:
        """Reference batches are small: on a CPU its time per image hardly depends on them."""
        if self.quick:
            return steps.Plan(2, 4, 8, 1)
        return steps.Plan(4 if size is VIT_B else 8, 128, 256, 5)

    def feature_point(self, number: str, plan: Plan, how: str) -> None:
        """Points 6 to 11."""
        title, measure = POINTS[number]
        where = timing.machine()
        self.add("", f"## {number}. {title}", "", how, "", *where, "", *measure(plan))

    # -- the points -------------------------------------------------------------------------------

    def training_step(self) -> None:
        """Point 1."""
        plan = self.plan(self.sizes[-1])
        self.add(
            "",
            "## 1. The training step of an incremental stage",
            "",
            "Two views, student and previous-stage teacher, all losses, backward, update. The "
            "reference runs the whole transformers model for each view, once for the student "
            "(gradient in the last block and the heads only) and once for the teacher, from "
            f"pixels that are ready in memory, {plan.reference_batch} to 8 images at a time; ours "
            f"reads {plan.batch} images per step from a float16 bank in the page cache. Times are "
            "per image. Goals: 150x on ViT-S/16, 300x on ViT-B/16.",
            "",
            *steps.HEAD,
        )
        for size in self.sizes:
            for name, at_stage_0 in [*((name, False) for name in steps.METHODS), ("goal", True)]:
                self.steps.append(steps.measure(size, name, self.plan(size), at_stage_0))
                self.add(steps.row(self.steps[-1]))

    def bank_building(self) -> None:
        """Point 3."""
        for size in self.sizes:
            # About as long for every size, so that opening files and syncing weigh alike.
            images = 32 if size is VIT_B else 96
            images, batch, repeats = (4, 2, 1) if self.quick else (images, 32, 5)
            self.builds[size.name] = building.measure(size, images, batch, repeats)
        batches = [1, 2] if self.quick else [8, 16, 32]
        self.add(
            "",
            "## 3. Building the bank",
            "",
            "Against a plain pass of the same trunk over ready-made crops; building includes "
            "decoding, cropping, writing and checksums. The ratio is the median over repeats of "
            "neighbours in time. Goal: at most 1.1x.",
            "",
            *building.table(self.builds),
            "",
            f"Settings, {self.sizes[0].name}:",
            "",
            *building.settings_table(self.sizes[0], batches, 1 if self.quick else 3, self.compiled),
        )

    def whole_experiment(self) -> None:
        """Point 2, from the parts of 1 and 3."""
        self.add(
            "",
            "## 2. A whole experiment on CIFAR-100's stage sizes",
            "",
            "Extrapolated from the measured parts: images x epochs x time per image; four banked "
            "views and a clean one of every training image that a stage draws, a clean one of "
            "every test image; `goal`, 100 epochs at stage 0 and 30 later.",
            "",
        )
        counts = experiment.cifar100_counts()
        for size in self.sizes:
            mine = [t for t in self.steps if t.size is size and t.method == "goal"]
            stage, base = (next(t for t in mine if t.labelled is flag) for flag in (False, True))
            build = self.builds[size.name]
            parts = experiment.Parts(
                reference_base=base.reference,
                reference_stage=stage.reference,
                ours_base=base.ours,
                ours_stage=stage.ours,
                full_pass=build.full,
                banked_pass=build.banked,
                tail_pass=stage.ours,  # an upper bound: a step holds more than one such pass
            )
            self.add(*experiment.report(size.name, parts, counts))

    def growth(self, folder: Path) -> None:
        """Point 4."""
        curves = growth.measure(self.sizes[0], self.quick)
        growth.plot(curves, folder / "growth.png")
        self.add(
            "",
            "## 4. Growth",
            "",
            f"Our step (`happy`, {self.sizes[0].name} tokens, batch 64 and two banked views unless "
            "varied) and memory beside the page cache; fitted exponents.",
            "",
            *growth.table(curves),
            "",
            "![Growth of step time and memory](growth.png)",
        )

    def bounds(self) -> None:
        """Point 5, and what else a stage spends time on."""
        self.add("", "## 5. What limits the step", "")
        for size in self.sizes:
            args = (4, 8, 1, 64, 1) if self.quick else (128, 256, 7, 2048, 256)
            found = limits.measure(size, "goal", *args)
            self.add(*limits.report(size.name, found))
            self.stage_shares(size, found.step / args[0])
        small = self.sizes[0]
        images, batch = (2, 2) if self.quick else (16, 16)
        self.add(
            "## Precision of the bank",
            "",
            f"{small.name}, random weights, {images} images. `python -m benchmarks.views` measures "
            "what it does to accuracy.",
            "",
            *precision.table(precision.lowest_cosines(small, images, batch)),
        )

    def stage_shares(self, size: Size, step: float) -> None:
        """Parts of a stage at CIFAR-100's size."""
        sizes = shares.Stages(120, 120, 3, 4) if self.quick else shares.Stages()
        parts = shares.measure(size, sizes, 8 if self.quick else 256)
        self.add(
            f"A stage of {sizes.images} images, {sizes.epochs} epochs, {size.name}:",
            "",
            *shares.table(parts, step, sizes),
            "",
        )


def main(
    *,
    points: str = ALL,
    quick: bool = False,
    compiled: Annotated[bool, Parameter(name="--compile")] = False,
    out: Path = Path("benchmarks"),
    data_root: Path | None = None,
    backbone: str | None = None,
    photographs: int = 2000,
    sizes: str = "20000,100000,1000000",
    busy: bool = False,
) -> None:
    """Measure the points asked for and write RESULTS.md and growth.png.

    Args:
        points: Which of the eleven, separated by commas; 2 needs 1 and 3.
        quick: Tiny sizes and no repeats: shows that everything runs, measures nothing.
        compiled: Also try torch.compile, which needs a C++ compiler.
        out: Folder of the report.
        data_root: Folder that holds CUB-200-2011, for point 6; else photographs are made.
        backbone: A transformers folder for points 6 and 9; else random weights.
        photographs: How many, for point 6.
        sizes: Features of the stages of point 7; the last is point 8's.
        busy: Note that other jobs ran on the machine meanwhile.
    """
    chosen = set(points.split(","))
    if "2" in chosen:
        chosen |= {"1", "3"}
    began, study = time.monotonic(), Study(quick, compiled)
    out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m benchmarks.speed", *sys.argv[1:]])
    study.add("# Speed", "", f"`{command}`", "", *timing.machine())
    if quick:
        study.add("", "A smoke run on tiny sizes: these figures mean nothing.")
    if "1" in chosen:
        study.training_step()
    if "3" in chosen:
        study.bank_building()
    if "2" in chosen:
        study.whole_experiment()
    if "4" in chosen:
        study.growth(out)
    if "5" in chosen:
        study.bounds()
    listed = tuple(int(size) for size in sizes.split(","))
    plan = Plan(quick, 16 if quick else photographs, listed, data_root, backbone)
    for point in sorted(chosen & POINTS.keys(), key=int):
        study.feature_point(point, plan, f"`{command}`" + (BUSY if busy else ""))
    study.add("", f"Measured in {time.monotonic() - began:.0f} s.")
    page, whole = out / "RESULTS.md", "\n".join(study.lines) + "\n"
    write_text(page, merged(page.read_text(), whole) if page.exists() else whole)


if __name__ == "__main__":
    cyclopts.run(main)
