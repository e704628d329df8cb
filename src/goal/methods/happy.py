"""Happy: debiased learning for continual discovery (Ma et al., NeurIPS 2024).

    stage 0:  L = (1 - lambda) (SelfDist - H(mean) + InfoNCE) + lambda (CE + SupCon)
    stage t:  L = SelfDist - H(known, new) - H(within known) - H(within new) + InfoNCE
                  + replay of prototypes, hard ones more often + |f - f_previous|^2

New heads start from the centroids farthest from known heads; the entropy of the mean prediction
is split into groups, so that new classes get their mass without a tug of war with known ones;
replay keeps the classifier, and distillation the feature.

Deviation: points the source leaves open, or where its text and code differ.
    - All terms of stage t have weight 1, as in the text; the code's default doubles the entropy
      between known and new.
    - Stage 0 is SimGCD's objective with epsilon = 1. Its teacher cools from 0.07 to 0.04 in 30
      epochs; later stages have a fixed 0.05, as in the text.
    - Prototypes are means of unit features, and replay starts from them as they are; the code
      stretches them to unit length first. The classifier sees only directions, so replayed
      features vary a little more here.
    - A new class that nobody is predicted to be keeps its weight as its prototype.
    - The ablation's first row is self-training with InfoNCE; random heads, no entropy at stage t.
    - The last epoch's model goes on, not the one that is best on test images.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from goal.losses.classification import negative_group_entropy
from goal.methods.base import Batch, LabelledBatch
from goal.methods.parts.parametric import RetentionSettings, Views
from goal.methods.simgcd import SelfDistilling, SelfDistillingSettings


class DiscoverySettings(SelfDistillingSettings):
    """Settings of Happy's discovery losses.

    Attributes:
        entropy_weight: Weight of the mean prediction's entropy at stage 0.
        group_entropy_weight: Weight of the entropy in groups after it.
        stage_teacher_temperature: Temperature of the targets after stage 0.
    """

    entropy_weight: float = Field(default=1.0, ge=0)
    group_entropy_weight: float = Field(default=1.0, ge=0)
    stage_teacher_temperature: float = Field(default=0.05, gt=0)


class HappySettings(DiscoverySettings, RetentionSettings):
    """Settings of Happy."""


ABLATION: Mapping[str, Mapping[str, Any]] = {
    "self-training": {
        "group_entropy_weight": 0.0,
        "head_init": "random",
        "replay_weight": 0.0,
        "distillation_weight": 0.0,
    },
    "+ entropy and init": {"replay_weight": 0.0, "distillation_weight": 0.0},
    "+ replay": {"distillation_weight": 0.0},
    "+ distillation": {},
}
"""Settings of each row of the paper's ablation; the last row is the whole method."""


class Discovering(SelfDistilling):
    """Happy's discovery: self-training without bias towards known classes."""

    settings: DiscoverySettings

    def target_temperature(self) -> float:
        """Falling at stage 0, which no prototypes precede; fixed afterwards."""
        if len(self.prototypes):
            return self.settings.stage_teacher_temperature
        return super().target_temperature()

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """SimGCD's base objective for labelled batches; discovery and retention for all others."""
        views = self.see(batch)
        if isinstance(batch, LabelledBatch):
            return self.base_objective(views, batch.labels)
        return self.discovery(views) | self.kept(batch, views, rng)

    def discovery(self, views: Views) -> dict[str, Tensor]:
        """L = SelfDist - H(known, new) - H(within known) - H(within new) + InfoNCE."""
        terms = {"self_distillation": self.view_distillation(views)}
        if self.settings.group_entropy_weight > 0:
            probabilities = self.probabilities(views.scores)
            grouped = negative_group_entropy(probabilities, len(self.prototypes))
            terms["entropy"] = self.settings.group_entropy_weight * grouped
        terms["contrast"] = self.contrast(views)
        return terms

    @abstractmethod
    def kept(self, batch: Batch, views: Views, rng: torch.Generator) -> dict[str, Tensor]:
        """Terms against forgetting, of an unlabelled batch."""


class Happy(Discovering):
    """Discovery without bias, and two ways of not forgetting known classes."""

    Settings = HappySettings
    settings: HappySettings

    def kept(self, batch: Batch, views: Views, rng: torch.Generator) -> dict[str, Tensor]:
        """Replay of prototypes and distillation of features."""
        return self.retention(self.settings, batch, views, rng)
