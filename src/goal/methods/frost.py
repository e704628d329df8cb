"""FRoST: feature replay, distillation and self-training (Roy et al., ECCV 2022).

    stage 0:  L = CE
    stage t:  L = BCE(pairs of the fresh head) + 25 ramp MSE(views) + w ramp CE(joint, fresh)
                  + CE(replayed features) + 10 |F - F_previous|

A fresh head with one output per new class learns from pairs of images that look alike. The joint
head over all classes copies the fresh head's labels, shifted behind the known classes, and
rehearses known ones on features drawn from their Gaussians. Only the joint head predicts. When the
stage ends, the fresh head says which images the Gaussians of new classes are measured on; then it
is dropped. F is the batch's features as one vector of unit length, and the distance is not
squared. The teacher is the previous stage's tail, in the public two-step code, too.

Deviation: points the source leaves open, or where this protocol differs.
    - The original drops known images by their true label. No label may be read here, so every
      image of the stage goes through every term, and known ones teach the new heads, too.
    - Pairs are alike by cosine, not by rank statistics, which need features behind a ReLU. The
      threshold is measured on labelled images when stage 0 ends (`likeness`).
    - w is 1. The original has 0.01, for 300 epochs of 39 steps at a constant rate of 0.1
      (CIFAR-100: 10,000 new images in batches of 256): weight x steps x rate = 11.7. Our stages
      are shorter and their rate is lower: 30 epochs of 41 steps at a mean rate of 0.005
      make 6.2 with w = 1 on CIFAR-100, and 0.06 with w = 0.01, two hundred times less than the
      original. On CUB it is 1.3 with w = 1, on the digits 5 to 6. A larger w would set a
      pseudo-label above a replayed feature, whose weight is 1.
    - Both heads are linear on unit features, as is everything here, at a temperature of 0.1: the
      original's features have no fixed length. "-1" for new biases is one unit of logits. Weights
      start at random and short, so that at first all new classes are about equally likely.
    - The ramp lasts three quarters of the stage, the share of the published two-step runs.
    - Gaussians live in the space of unit features and never change; a class that nobody is
      assigned to takes its weight's direction and the mean variance.
    - Two heads are rows of one matrix: the fresh rows come last, and exist within a stage only.
"""

import copy
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.losses.distillation import batch_distillation
from goal.losses.pairwise import alike_by_cosine, consistency, pairwise_bce, ramp_up
from goal.methods.base import (
    Batch,
    LabelledBatch,
    LabelledStage,
    Method,
    MethodSettings,
    Outputs,
    Stage,
    infer_all,
)
from goal.methods.parts.class_gaussians import ClassGaussians
from goal.methods.parts.likeness import break_even_cosine

SHORT = 0.1  # length of a new row of weights


class FRoSTSettings(MethodSettings):
    """Settings of FRoST.

    Attributes:
        pair_threshold: Smallest cosine of a positive pair; None measures it when stage 0 ends.
        consistency_weight: Weight of the views' consistency, once ramped up.
        pseudo_label_weight: Weight of the joint head's pseudo-labels, once ramped up [w].
        ramp_share: Share of a stage's epochs in which both ramp up.
        replay_weight: Weight of the replayed features.
        replay_per_class: Features replayed per known class and step.
        distillation_weight: Weight of feature distillation from the previous stage.
        temperature: Temperature of both heads.
    """

    pair_threshold: float | None = Field(default=None, ge=-1, le=1)
    consistency_weight: float = Field(default=25.0, ge=0)
    pseudo_label_weight: float = Field(default=1.0, ge=0)
    ramp_share: float = Field(default=0.75, ge=0, le=1)
    replay_weight: float = Field(default=1.0, ge=0)
    replay_per_class: int = Field(default=2, gt=0)
    distillation_weight: float = Field(default=10.0, ge=0)
    temperature: float = Field(default=0.1, gt=0)


class TwoHeads(nn.Module):
    """A linear joint head over all classes and, within a stage, a fresh one over its new classes.

    Both are rows of one matrix, the fresh ones last.
    """

    fresh: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, width))
        self.bias = nn.Parameter(torch.empty(0))
        self.register_buffer("fresh", torch.zeros((), dtype=torch.int64))

    @property
    def num_classes(self) -> int:
        """Classes of the joint head."""
        return len(self.bias) - int(self.fresh)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the joint head, (N, K), and of the fresh one, (N, K_new)."""
        scores = F.linear(features, self.weight, self.bias)
        return scores[:, : self.num_classes], scores[:, self.num_classes :]

    def grow(self, count: int, first_bias: float, fresh: int, rng: torch.Generator) -> None:
        """Append classes to the joint head, and a fresh head behind it, all of random weights."""
        rows = torch.randn(count + fresh, self.weight.shape[1], generator=rng).to(self.weight)
        rows = SHORT * F.normalize(rows, dim=1)
        biases = self.bias.new_tensor([first_bias] * count + [0.0] * fresh)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), rows]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), biases]))
        self.fresh = torch.full_like(self.fresh, fresh)

    def drop_fresh(self) -> None:
        """Forget the fresh head."""
        kept = self.num_classes
        self.weight = nn.Parameter(self.weight.detach()[:kept].clone())
        self.bias = nn.Parameter(self.bias.detach()[:kept].clone())
        self.fresh = torch.zeros_like(self.fresh)


class FRoST(Method):
    """Pairs teach the fresh head, the fresh head teaches the joint one."""

    Settings = FRoSTSettings
    base_keys = frozenset({"temperature"})
    ramp: Tensor
    threshold: Tensor  # smallest cosine of a positive pair

    def __init__(self, settings: FRoSTSettings, tail: Tail) -> None:
        super().__init__(tail)
        self.settings = settings
        self.heads = TwoHeads(tail.width)
        self.gaussians = ClassGaussians(tail.width)
        self.teacher = copy.deepcopy(tail).requires_grad_(False)
        self.register_buffer("ramp", torch.zeros(()))
        self.register_buffer("threshold", torch.ones(()))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter, since the heads grow."""
        assert isinstance(settings, FRoSTSettings)
        return cls(settings, tail)

    @property
    def num_classes(self) -> int:
        """Classes of the joint head."""
        return self.heads.num_classes

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features, and scores by the joint head."""
        features = F.normalize(self.tail(tokens), dim=1)
        return Outputs(features, self.heads(features)[0])

    # -- stages -----------------------------------------------------------------------------------

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Keep the previous tail; grow the joint head, and put a fresh one beside it."""
        self.teacher.load_state_dict(self.tail.state_dict())
        if stage.index == 0:
            self.heads.grow(stage.num_new, 0.0, 0, rng)
        else:
            lowest = float(self.heads.bias.detach().min())
            below = lowest - self.settings.temperature  # one unit of logits
            self.heads.grow(stage.num_new, below, stage.num_new, rng)

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Raise the weights of consistency and pseudo-labels."""
        if stage.index > 0:
            self.ramp.fill_(ramp_up(epoch, self.settings.ramp_share * stage.epochs))

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """Cross-entropy for labelled batches, the objective above for all others."""
        features = F.normalize(self.tail(batch.first, batch.second), dim=1)
        joint, fresh = self.heads(features)
        if isinstance(batch, LabelledBatch):
            return {"classification": self._cross_entropy(joint, batch.labels.repeat(2))}
        return self._discovery(features, joint, fresh) | self._retention(batch, features, rng)

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure the Gaussians of the stage's classes, then drop the fresh head.

        Images belong to the class of their label, or to the fresh head's choice.
        """
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            classes = stage.labels.to(features.device)
            given = self.settings.pair_threshold
            found = break_even_cosine(features, classes, rng) if given is None else given
            self.threshold.fill_(found)
        else:
            classes = self.heads(features)[1].argmax(dim=1)
        weights = F.normalize(self.heads.weight.detach()[stage.num_known : stage.num_seen], dim=1)
        self.gaussians.remember(features, classes, weights)
        self.heads.drop_fresh()

    # -- terms ------------------------------------------------------------------------------------

    def _discovery(self, features: Tensor, joint: Tensor, fresh: Tensor) -> dict[str, Tensor]:
        """Pairs, consistency and pseudo-labels; the first views are above the second ones."""
        s, images = self.settings, len(features) // 2
        first, second = (fresh / s.temperature).softmax(dim=1).chunk(2)
        alike = alike_by_cosine(features[:images], float(self.threshold))
        shifted = fresh[:images].argmax(dim=1) + joint.shape[1] - fresh.shape[1]
        copied = self._cross_entropy(joint[:images], shifted)
        return {
            "pairs": pairwise_bce(first, second, alike),
            "consistency": s.consistency_weight * self.ramp * consistency(first, second),
            "pseudo_labels": s.pseudo_label_weight * self.ramp * copied,
        }

    def _retention(self, batch: Batch, features: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
        """Replay of known classes in the joint head, and distillation of the first views."""
        s = self.settings
        replayed, classes = self.gaussians.sample(s.replay_per_class, rng, one_spread=True)
        kept = self._cross_entropy(self.heads(replayed)[0], classes)
        with torch.no_grad():
            previous = F.normalize(self.teacher(batch.first), dim=1)
        near = batch_distillation(features[: len(previous)], previous)
        return {"replay": s.replay_weight * kept, "distillation": s.distillation_weight * near}

    def _cross_entropy(self, scores: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(scores / self.settings.temperature, classes)

    # -- diagnostics ------------------------------------------------------------------------------

    def weights(self) -> Tensor:
        """Weights of the joint head, without its biases."""
        return self.heads.weight.detach()[: self.num_classes]
