"""Point 1: the training step, against a step that runs the whole model as the peers do."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.speed.subjects import (
    KNOWN,
    NEW,
    Size,
    as_peers_run_it,
    cut,
    method_in_stage,
    noise_bank,
    pixel_batch,
    random_model,
)
from benchmarks.speed.timing import Task, interleaved
from goal.backbone.tail import normalise
from goal.backbone.tokens import TokenSource
from goal.backbone.trunk import Backbone
from goal.learning.trainer import make_optimiser
from goal.methods.base import Batch, LabelledBatch, Stage
from goal.methods.parts.parametric import Parametric
from goal.settings.training import TrainingSettings

METHODS = ("happy", "goal")


@dataclass(frozen=True)
class StepTimes:
    """Seconds per image of one step, and how far the two ways of computing it are apart."""

    size: Size
    method: str
    labelled: bool
    reference: float
    ours: float
    without_reading: float
    difference: float


@dataclass(frozen=True)
class Plan:
    """How much to measure: batches of the reference and of ours, images in the bank, repeats."""

    reference_batch: int
    batch: int
    images: int
    repeats: int


def labelled(batch: Batch, classes: int) -> LabelledBatch:
    """The same batch as stage 0 has it."""
    return LabelledBatch(batch.first, batch.second, batch.positions, batch.positions % classes)


def step_task(method: Parametric, draw: "BatchSource") -> Task:
    """One step of training: draw a batch, losses, backward, update."""
    rng = torch.Generator().manual_seed(2)
    optimiser = make_optimiser(method, TrainingSettings(), 1e-3)

    def step() -> None:
        terms = method.losses(draw(), rng)
        optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimiser.step()

    return step


@dataclass
class BatchSource:
    """Draws batches from banked tokens, or gives the same one again and again."""

    source: TokenSource
    count: int
    stage0_classes: int | None = None
    held: Batch | None = None

    def __post_init__(self) -> None:
        self.rng = torch.Generator().manual_seed(3)

    def __call__(self) -> Batch:
        """Return the next batch."""
        if self.held is not None:
            return self.held
        positions = torch.randperm(len(self.source), generator=self.rng)[: self.count]
        batch = Batch(*self.source.pair(positions, self.rng), positions)
        return batch if self.stage0_classes is None else labelled(batch, self.stage0_classes)

    def frozen(self) -> "BatchSource":
        """Hold one batch in memory."""
        return BatchSource(self.source, self.count, held=self())


def our_steps(
    method: Parametric, source: TokenSource, batch: int, stage0_classes: int | None = None
) -> tuple[Task, Task]:
    """Our step with token reading, and the same from a batch in memory."""
    if stage0_classes is None:  # the teacher's features are computed once per stage
        new = len(method.classifier.weight) - len(method.prototypes)
        stage = Stage(1, len(method.prototypes), new, 30, source)
        method.begin_epoch(stage, 0, torch.Generator())
    draw = BatchSource(source, batch, stage0_classes)
    return step_task(method, draw), step_task(method, draw.frozen())


def measure(size: Size, name: str, plan: Plan, at_stage_0: bool = False) -> StepTimes:
    """Measure both ways, interleaved, and compare the loss terms they give."""
    known, new = (0, KNOWN) if at_stage_0 else (KNOWN, NEW)
    classes = new if at_stage_0 else None
    model = random_model(size)
    backbone = cut(model)
    pixels = pixel_batch(size, plan.reference_batch)
    if classes is not None:
        pixels = labelled(pixels, classes)
    ours = method_in_stage(name, backbone, plan.images, known, new)
    plain = as_peers_run_it(ours, model)
    difference = largest_difference(ours, plain, backbone, pixels, classes)
    with TemporaryDirectory() as folder:
        source = noise_bank(size, plan.images, 4, Path(folder))
        reading, held = our_steps(ours, source, plan.batch, classes)
        tasks = {
            "reference": step_task(plain, BatchSource(source, 0, held=pixels)),
            "ours": reading,
            "without reading": held,
        }
        seconds = interleaved(tasks, plan.repeats)
    return StepTimes(
        size,
        name,
        at_stage_0,
        seconds["reference"] / plan.reference_batch,
        seconds["ours"] / plan.batch,
        seconds["without reading"] / plan.batch,
        difference,
    )


@torch.no_grad()
def largest_difference(
    ours: Parametric, plain: Parametric, backbone: Backbone, pixels: Batch, classes: int | None
) -> float:
    """Largest relative difference between the loss terms of both ways on the same images."""
    eps = backbone.trunk.norm_eps
    assert eps is not None
    views = [
        normalise(
            backbone.trunk.model(pixel_values=view.normalised).last_hidden_state,
            eps,
        )
        for view in (pixels.first, pixels.second)
    ]
    batch = Batch(views[0], views[1], pixels.positions)
    if classes is not None:
        batch = labelled(batch, classes)
    mine = ours.losses(batch, torch.Generator().manual_seed(4))
    theirs = plain.losses(pixels, torch.Generator().manual_seed(4))
    scale = max(1.0, max(float(term.abs()) for term in theirs.values()))
    return max(float((mine[key] - theirs[key]).abs()) for key in theirs) / scale


HEAD = (
    "| model | method | reference, ms per image | ours | **ratio** | ours without reading "
    "| ratio | losses differ by |",
    "|---|---|---:|---:|---:|---:|---:|---:|",
)


def row(t: StepTimes) -> str:
    """Ratios as a line of a Markdown table."""
    stage = ", stage 0" if t.labelled else ""
    return (
        f"| {t.size.name} | {t.method}{stage} | {1e3 * t.reference:.1f} | {1e3 * t.ours:.3f} "
        f"| **{t.reference / t.ours:.0f}x** | {1e3 * t.without_reading:.3f} "
        f"| {t.reference / t.without_reading:.0f}x | {t.difference:.0e} |"
    )
