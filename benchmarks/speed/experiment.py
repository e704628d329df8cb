"""Point 2: a whole experiment on CIFAR-100's stage sizes, from measured parts."""

from dataclasses import dataclass

import numpy as np

from goal.protocol.stages import build_stages
from goal.settings.settings import compose
from goal.settings.training import TrainingSettings

DAY = 86_400


@dataclass(frozen=True)
class Parts:
    """Measured seconds per image (or per view, for a pass of the network)."""

    reference_base: float  # step of stage 0
    reference_stage: float  # step of a later stage
    ours_base: float
    ours_stage: float
    full_pass: float  # whole model, one clean view
    banked_pass: float  # trunk, with decoding, cropping, writing and checksums
    tail_pass: float  # tail and heads on banked tokens


@dataclass(frozen=True)
class Counts:
    """How often each part happens in one experiment."""

    base_steps: int  # images x epochs of stage 0
    stage_steps: int  # the same over all later stages
    tests: int  # test images over all stages
    banked_views: int  # passes that fill the bank


def cifar100_counts(views: int = 4) -> Counts:
    """Count images, epochs and views of the five-stage protocol with the published recipe."""
    train, test = np.repeat(np.arange(100), 500), np.repeat(np.arange(100), 100)
    settings = compose({"data": {"name": "cifar100"}})
    stages = build_stages(train, test, 100, settings.protocol)
    loop = TrainingSettings()
    later = [len(stage.train_ids) for stage in stages[1:]]
    distinct = len(np.unique(np.concatenate([stage.train_ids for stage in stages])))
    return Counts(
        base_steps=len(stages[0].train_ids) * loop.base_epochs,
        stage_steps=sum(later) * loop.stage_epochs,
        tests=sum(len(stage.test_ids) for stage in stages),
        banked_views=distinct * (views + 1) + len(stages[-1].test_ids),
    )


def report(name: str, parts: Parts, counts: Counts) -> list[str]:
    """The arithmetic of one backbone, line by line."""
    c, p = counts, parts
    reference = c.base_steps * p.reference_base + c.stage_steps * p.reference_stage
    testing = c.tests * p.full_pass
    bank = c.banked_views * p.banked_pass
    training = c.base_steps * p.ours_base + c.stage_steps * p.ours_stage
    our_testing = c.tests * p.tail_pass
    plain, second = reference + testing, training + our_testing
    first = bank + second

    def product(count: int, each: float) -> str:
        return f"{count:,} x {1e3 * each:.2f} ms = {count * each:,.0f} s"

    return [
        f"**{name}**",
        "",
        f"- reference: stage 0 {product(c.base_steps, p.reference_base)}; later stages "
        f"{product(c.stage_steps, p.reference_stage)}; tests {product(c.tests, p.full_pass)}; "
        f"together {plain / DAY:.1f} days",
        f"- ours: bank {product(c.banked_views, p.banked_pass)}; stage 0 "
        f"{product(c.base_steps, p.ours_base)}; later stages "
        f"{product(c.stage_steps, p.ours_stage)}; tests {product(c.tests, p.tail_pass)}; "
        f"together {first / DAY:.2f} days",
        f"- ratio, bank building included: **{plain / first:.0f}x** (goal 20x)",
        f"- ratio for a second method on the same bank ({second / 3600:.1f} hours): "
        f"**{plain / second:.0f}x** (goal 100x)",
        "",
    ]
