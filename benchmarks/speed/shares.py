"""What the parts of a stage beside its steps take, at CIFAR-100's size."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.speed.subjects import KNOWN, NEW, Size, cut, method_in_stage, noise_bank
from benchmarks.speed.subjects import random_model as model_of
from benchmarks.speed.timing import Task
from goal.backbone.tokens import RepeatingSource, Tokens
from goal.evaluation.scoring import evaluate
from goal.methods.base import Stage, infer_all
from goal.methods.goal import Goal
from goal.methods.parts.heads import farthest_centroids, novelty_centroids
from goal.protocol.stages import StageIds


@dataclass(frozen=True)
class Repeated:
    """A small bank that stands for a larger one: its images come again and again."""

    source: RepeatingSource
    count: int

    def __len__(self) -> int:
        return self.count

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        return self.source.clean(positions % len(self.source))

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Tokens of two views."""
        return self.source.pair(positions % len(self.source), rng, mine)

    def drawn_views(self) -> range:
        """Views that pairs are drawn from."""
        return self.source.drawn_views()

    def view(self, number: int, positions: Tensor) -> Tokens:
        """Tokens of one view."""
        return self.source.view(number, positions % len(self.source))


@dataclass(frozen=True)
class Stages:
    """Sizes of the stage that is looked at."""

    images: int = 5250  # CIFAR-100, stage 1
    tests: int = 6000
    epochs: int = 30
    batch: int = 128


def seconds_of(work: Task) -> float:
    """Run once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def planted_features(size: Size, sizes: Stages) -> Tensor:
    """Unit features in as many clumps as there are classes."""
    rng = torch.Generator().manual_seed(7)
    centres = F.normalize(torch.randn(KNOWN + NEW, size.width, generator=rng), dim=1)
    noise = torch.randn(sizes.images, size.width, generator=rng) * (0.8 * size.width**-0.5)
    return F.normalize(centres[torch.arange(sizes.images) % (KNOWN + NEW)] + noise, dim=1)


def measure(size: Size, sizes: Stages, bank_images: int) -> dict[str, float]:
    """Seconds per stage of everything but the steps."""
    features = planted_features(size, sizes)
    known = F.normalize(features[:KNOWN], dim=1)
    rng = torch.Generator().manual_seed(8)
    with TemporaryDirectory() as folder:
        source = noise_bank(size, bank_images, 4, Path(folder))
        assert isinstance(source, RepeatingSource)
        tokens = Repeated(source, sizes.images)
        method = method_in_stage("goal", cut(model_of(size)), sizes.images)
        assert isinstance(method, Goal)
        stage = Stage(1, KNOWN, NEW, sizes.epochs, tokens)
        settings = method.settings
        refreshes = math.ceil((sizes.epochs - settings.warmup_epochs) / settings.refresh_every)
        one = seconds_of(lambda: infer_all(method, tokens))
        tests = Repeated(source, sizes.tests)
        truth = np.arange(sizes.tests) % (KNOWN + NEW)
        ids = StageIds(1, np.arange(sizes.images), np.arange(sizes.tests), KNOWN, NEW)
        return {
            "features for head initialisation": one,
            "k-means and head initialisation, farthest": seconds_of(
                lambda: farthest_centroids(features, known, NEW, rng)
            ),
            "k-means and head initialisation, novelty": seconds_of(
                lambda: novelty_centroids(features, known, NEW, rng)
            ),
            "features of the previous model, once": seconds_of(
                lambda: method.begin_epoch(stage, 0, rng)
            ),
            f"confident set, {refreshes} refreshes": refreshes
            * seconds_of(lambda: method.begin_epoch(stage, settings.warmup_epochs, rng)),
            "prototypes at the end": seconds_of(lambda: method.end_stage(stage, rng)),
            "evaluation": seconds_of(lambda: evaluate(method, tests, truth, ids, KNOWN)),
        }


def table(parts: dict[str, float], step: float, sizes: Stages) -> list[str]:
    """Seconds and shares as Markdown; `step` is seconds per image."""
    training = step * sizes.images * sizes.epochs
    total = training + sum(parts.values())
    lines = ["| part | seconds | share |", "|---|---:|---:|"]
    for name, seconds in {"training steps": training, **parts}.items():
        lines.append(f"| {name} | {seconds:.1f} | {100 * seconds / total:.1f}% |")
    return lines
