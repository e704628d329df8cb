"""SimGCD, a parametric baseline (Wen et al., ICCV 2023), and SimGCD+, the same with LwF.

    stage 0:  L = (1 - lambda) (SelfDist - epsilon H(mean) + InfoNCE) + lambda (CE + SupCon)
    stage t:  L = SelfDist - epsilon H(mean) + InfoNCE  [SimGCD+: + w tau^2 KL(previous || own)]

Each view learns the other's prediction, sharpened by a teacher temperature that falls during the
stage; H(mean), the entropy of the mean prediction over all classes, keeps every class in use. The
weights of new classes start at random. SimGCD has nothing that keeps the old: on a continual run
it loses known classes or never finds new ones, and is here to show that.

As in the public code of SimGCD and Happy, heads start at the length of a linear layer's rows, an
epoch drops the images that do not fill a batch, and every stage starts with a new projector: the
entropy of a mean prediction needs many images, and only the classifier is handed on.

Deviation: points the source leaves open.
    - Stage 0 has every image labelled, and so each of SimGCD's four terms sees every image.
    - The temperature falls linearly from the first epoch to the last of `cooling_epochs`, afresh
      in every stage; a stage with fewer epochs ends before the last value.
    - LwF needs logits: cosines over the student's temperature, the numbers whose softmax is the
      prediction. Bare cosines, softened by tau = 2, would be all but uniform, and so no teacher.
    - LwF has weight 1 and sees both views, each against the previous model on the same view.
"""

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.losses.classification import negative_mean_entropy
from goal.losses.distillation import logit_distillation
from goal.methods.base import Batch, LabelledBatch, MethodSettings, Stage
from goal.methods.parts.parametric import BASE_KEYS, Parametric, ParametricSettings, Views


class SelfDistillingSettings(ParametricSettings):
    """Settings of methods on SimGCD's base objective; [names] are the paper's.

    `sup_con_weight` [lambda] is the share of both supervised terms of stage 0.

    Attributes:
        entropy_weight: Weight of the mean prediction's entropy [epsilon].
        first_teacher_temperature: Temperature of the targets in a stage's first epoch.
        teacher_temperature: The same once it has fallen.
        cooling_epochs: Epochs in which it falls.
    """

    entropy_weight: float = Field(default=2.0, ge=0)
    head_length: float = Field(default=3**-0.5, gt=0)  # of a row of nn.Linear, on average
    first_teacher_temperature: float = Field(default=0.07, gt=0)
    teacher_temperature: float = Field(default=0.04, gt=0)
    cooling_epochs: int = Field(default=30, ge=0)


class SelfDistilling(Parametric):
    """Common ground of SimGCD and what builds on it: the base objective, a teacher that cools."""

    base_family = "simgcd"
    only_full_batches = True
    base_keys = BASE_KEYS | {"entropy_weight", "first_teacher_temperature", "cooling_epochs"}
    epoch: Tensor

    def __init__(self, settings: SelfDistillingSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.settings = settings
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter, since the classifier grows."""
        assert isinstance(settings, SelfDistillingSettings)
        return cls(settings, tail, rng)

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Grow the classifier, and start the projector again."""
        super().begin_stage(stage, rng)
        if stage.index > 0:
            self.projector.draw(rng)

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Note the epoch, which the teacher's temperature depends on."""
        super().begin_epoch(stage, epoch, rng)
        self.epoch.fill_(epoch)

    def target_temperature(self) -> float:
        """Temperature of the targets in this epoch."""
        s = self.settings
        return cooled(
            s.first_teacher_temperature, s.teacher_temperature, s.cooling_epochs, int(self.epoch)
        )

    def mean_entropy(self, views: Views) -> Tensor:
        """Weighted negative entropy of the mean prediction over all classes."""
        return self.settings.entropy_weight * negative_mean_entropy(
            self.probabilities(views.scores)
        )

    def base_objective(self, views: Views, labels: Tensor) -> dict[str, Tensor]:
        """SimGCD's objective where every image has a label."""
        share = self.settings.sup_con_weight
        terms = self.base_contrast(views, labels)
        terms["classification"] = share * self.cross_entropy(views.scores, labels.repeat(2))
        terms["self_distillation"] = (1 - share) * self.view_distillation(views)
        if self.settings.entropy_weight > 0:
            terms["entropy"] = (1 - share) * self.mean_entropy(views)
        return terms


class SimGCDSettings(SelfDistillingSettings):
    """Settings of SimGCD, whose new heads start at random."""

    head_init: Literal["random"] = "random"


class SimGCD(SelfDistilling):
    """SimGCD, stage after stage, as if the past did not matter."""

    Settings = SimGCDSettings

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective for labelled batches, self-training for all others."""
        views = self.see(batch)
        if isinstance(batch, LabelledBatch):
            return self.base_objective(views, batch.labels)
        return self.incremental_objective(views, batch)

    def incremental_objective(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        """L = SelfDist - epsilon H(mean) + InfoNCE."""
        terms = {"self_distillation": self.view_distillation(views)}
        if self.settings.entropy_weight > 0:
            terms["entropy"] = self.mean_entropy(views)
        return terms | {"contrast": self.contrast(views)}

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Keep nothing."""


class SimGCDPlusSettings(SimGCDSettings):
    """Settings of SimGCD+; [names] are LwF's.

    Attributes:
        lwf_weight: Weight of the distillation of logits.
        lwf_temperature: Its temperature [T, here tau].
    """

    lwf_weight: float = Field(default=1.0, ge=0)
    lwf_temperature: float = Field(default=2.0, gt=0)


class SimGCDPlus(SimGCD):
    """SimGCD with learning without forgetting: known scores stay as the previous model's."""

    Settings = SimGCDPlusSettings
    settings: SimGCDPlusSettings
    previous_weights: Tensor  # unit weights of the previous classifier, (K_known, D)

    def __init__(self, settings: SimGCDPlusSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.register_buffer("previous_weights", torch.empty(0, tail.width))

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Keep the previous classifier beside the previous tail, then grow as SimGCD does."""
        self.previous_weights = F.normalize(self.classifier.weight.detach(), dim=1)
        super().begin_stage(stage, rng)

    def asks_teacher(self) -> bool:
        """LwF does."""
        return self.settings.lwf_weight > 0

    def incremental_objective(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        """SimGCD's, and LwF towards the previous model."""
        terms = super().incremental_objective(views, batch)
        s, known = self.settings, len(self.previous_weights)
        if s.lwf_weight > 0:
            previous = self.previous_features(batch) @ self.previous_weights.T
            kept = logit_distillation(
                views.scores[:, :known] / s.student_temperature,
                previous / s.student_temperature,
                s.lwf_temperature,
            )
            terms["logit_distillation"] = s.lwf_weight * kept
        return terms


def cooled(first: float, last: float, epochs: int, epoch: int) -> float:
    """Value in an epoch (from 0) that falls linearly from `first` to `last` in `epochs` epochs."""
    if epoch >= epochs:
        return last
    return first + (last - first) * epoch / max(epochs - 1, 1)
