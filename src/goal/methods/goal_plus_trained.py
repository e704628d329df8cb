"""GOAL+ in its trained form: GOAL's stage 0 gives a second feature, which decides beside the first.

    stage 0:  L as GOAL's; then two whitened spaces, of the pretrained feature (which no label has
              bent) and of the aligned one (which tells base classes apart)
    stage t:  no gradient; as `goal_plus`, with both features, and each new class claims a vertex

A feature trained on base classes folds what is new onto what is known: new classes are found
better in the pretrained feature, while both together decide better than either.
"""

import math
from dataclasses import replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.methods.base import (
    Batch,
    LabelledBatch,
    LabelledStage,
    MethodSettings,
    Outputs,
    Stage,
    infer_all,
)
from goal.methods.parts.aligned_base import AlignedBase
from goal.methods.parts.feature_memory import FeatureMemory
from goal.methods.parts.goal_plus_settings import GoalPlusSettings

HALF = math.sqrt(0.5)  # two unit vectors of this length make one


class TrainedGoalPlus(AlignedBase):
    """Two frozen features, one memory."""

    Settings = GoalPlusSettings
    settings: GoalPlusSettings

    def __init__(
        self, settings: GoalPlusSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> None:
        super().__init__(settings, tail, capacity, rng)
        self.memory = FeatureMemory(settings, spaces=2)

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct for at most `capacity` classes, unless the settings say more."""
        assert isinstance(settings, GoalPlusSettings)
        return cls(settings, tail, capacity, rng)

    @property
    def num_classes(self) -> int:
        """Classes in memory; while stage 0 trains, with a classifier weight."""
        return len(self.memory) or super().num_classes

    # -- stages -----------------------------------------------------------------------------------

    def trains(self, index: int) -> bool:
        """At stage 0 only."""
        return index == 0

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Start stage 0 like GOAL; the teacher then keeps the pretrained tail for good."""
        self.make_room(stage.num_new)
        if stage.index == 0:
            super().begin_stage(stage, rng)

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """GOAL's base objective."""
        assert isinstance(batch, LabelledBatch)
        return self.base_objective(self.see(batch), batch.labels)

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Fit the spaces and remember base classes, or discover new ones and remember them."""
        outputs = infer_all(self, stage.tokens)
        features = self._pair(outputs)
        if isinstance(stage, LabelledStage):
            self.memory.fit(features, stage.labels.to(outputs.features.device), stage.num_new)
            return
        found = self.memory.discover(features, stage.num_new, rng)
        assert outputs.embeddings is not None
        self.claim_new(outputs.embeddings, found.shares_NM.argmax(dim=1), stage)

    # -- both features ----------------------------------------------------------------------------

    def infer(self, tokens: Tokens) -> Outputs:
        """Join both features to one of unit length; score by the memory once there is one."""
        outputs = super().infer(tokens)
        pretrained = F.normalize(self.teacher(tokens), dim=1)
        joined = HALF * torch.cat([pretrained, outputs.features], dim=1)
        both = Outputs(joined, outputs.scores, outputs.embeddings)
        if not len(self.memory):
            return both
        return replace(both, scores=self.memory(self._pair(both)).to(joined))

    def probabilities(self, scores: Tensor) -> Tensor:
        """Posterior of the softened log-densities; while stage 0 trains, as for cosines."""
        return scores.softmax(dim=1) if len(self.memory) else super().probabilities(scores)

    def _pair(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """The pretrained and the aligned feature, both of unit length."""
        pretrained, aligned = (outputs.features / HALF).chunk(2, dim=1)
        return pretrained, aligned

    @classmethod
    def carried_over(cls, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """States of version 0.1, when the memory's parts lay in the method itself."""
        if "memory.wary" in state:
            return FeatureMemory.carried_over(state)
        renamed = {_renamed(name): tensor for name, tensor in state.items()}
        wary = torch.full((len(state["memory.means"]),), _FORMER_CAUTION, dtype=torch.float64)
        wary[: len(state["classifier.weight"])] = 0
        return FeatureMemory.carried_over({**renamed, "memory.wary": wary})

    def weights(self) -> None:
        """None: Gaussians have no weight vectors."""


_FORMER_CAUTION = 0.16  # against every discovered class alike
_FORMERLY = {
    "memory.": "memory.shapes.",
    "looking.": "memory.looking.",
    "pretrained.": "memory.deciding.0.",
    "aligned.": "memory.deciding.1.",
    "known": "memory.known",
}


def _renamed(name: str) -> str:
    for old, new in _FORMERLY.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
