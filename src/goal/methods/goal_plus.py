"""GOAL+: GOAL's stage 0, then a memory that cannot forget. Ours.

    stage 0:  L as GOAL's; then two whitened spaces, of the pretrained feature (which no label has
              bent) and of the aligned one (which tells base classes apart)
    stage t:  no gradient. Several splits into known and novel, clusters, EM with known means
              fixed (`discovery`), all in the pretrained space; the likeliest split wins. Each new
              class gets a mean and a little of its own shape in both spaces (`shape_memory`), and
              claims a free vertex
    predict:  argmax_c log N(x; mean_c, A_c) over both spaces, less a little for discovered classes,
              which were learned from guesses

A feature trained on base classes folds what is new onto what is known: new classes are found
better in the pretrained feature, while both together decide better than either. What has been
learned never changes, so base classes lose only to new neighbours.

docs/decisions/0013-goal-plus.md has what was tried and how it was chosen: by rehearsal inside
stage 0, without test images or novel classes.
"""

import math
from dataclasses import replace
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field
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
from goal.methods.parts.aligned_base import AlignedBase, AlignedBaseSettings
from goal.methods.parts.discovery import discover
from goal.methods.parts.shape_memory import ShapeMemory
from goal.methods.parts.whitening import Whitening

HALF = math.sqrt(0.5)  # two unit vectors of this length make one


class GoalPlusSettings(AlignedBaseSettings):
    """Settings of GOAL+, beside those of GOAL's stage 0.

    Attributes:
        discovery_dimensions: Principal directions in which new classes are looked for.
        pretrained_dimensions: Directions of the pretrained feature that decide.
        aligned_dimensions: Directions of the aligned feature that decide.
        shape: Share of its own shape in a class's covariance [s in `shape_memory`].
        shape_rank: Directions of that shape that are kept.
        temperature: Softness of EM's assignments.
        parts: Largest number of parts in the mixtures that split novel from known images.
        restarts: Starts of k-means per split.
        caution: Log-odds taken off discovered classes in the softened scores; they were learned
            from guesses.
    """

    discovery_dimensions: int = Field(default=96, gt=0)
    pretrained_dimensions: int = Field(default=512, gt=0)
    aligned_dimensions: int = Field(default=256, gt=0)
    shape: float = Field(default=0.03, ge=0, lt=1)
    shape_rank: int = Field(default=64, gt=0)
    temperature: float = Field(default=4.0, gt=0)
    parts: int = Field(default=4, ge=2)
    restarts: int = Field(default=20, gt=0)
    caution: float = Field(default=0.16, ge=0)


class GoalPlus(AlignedBase):
    """Two frozen features, one memory."""

    Settings = GoalPlusSettings
    settings: GoalPlusSettings
    known: Tensor  # means of all classes where new ones are looked for, (K, d)

    def __init__(
        self, settings: GoalPlusSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> None:
        super().__init__(settings, tail, capacity, rng)
        s = settings
        self.looking = Whitening(s.discovery_dimensions)
        self.pretrained = Whitening(s.pretrained_dimensions)
        self.aligned = Whitening(s.aligned_dimensions)
        self.memory = ShapeMemory(0, s.shape, s.shape_rank)
        self.register_buffer("known", torch.zeros(0, 0, dtype=torch.float64))

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
        if isinstance(stage, LabelledStage):
            labels = stage.labels.to(outputs.features.device)
            self._fit_spaces(self._pair(outputs), labels, stage.num_new)
            self.learn_classes(outputs, F.one_hot(labels, stage.num_new).double())
        else:
            s, looking = self.settings, self.looking(self._pair(outputs)[0])
            found = discover(
                looking,
                self.known,
                stage.num_new,
                temperature=s.temperature,
                parts=s.parts,
                restarts=s.restarts,
                rng=rng,
            )
            self.learn_classes(outputs, found.shares_NM, found.means_Md)
            assert outputs.embeddings is not None
            self.claim_new(outputs.embeddings, found.shares_NM.argmax(dim=1), stage)

    def learn_classes(
        self, outputs: Outputs, shares_NM: Tensor, looking_Md: Tensor | None = None
    ) -> None:
        """Remember M classes, to which image n belongs with weight ``shares_NM[n, m]``.

        `looking_Md` are their means where they were found; by default their images' means.
        """
        if looking_Md is None:
            total = shares_NM.sum(dim=0).clamp_min(1e-12)[:, None]
            looking_Md = shares_NM.T @ self.looking(self._pair(outputs)[0]) / total
        self.known = torch.cat([self.known, looking_Md])
        points = self._points(outputs)
        self.memory.learn(points, shares_NM, points.mean(dim=0).expand(len(looking_Md), -1))

    def _fit_spaces(self, features: tuple[Tensor, Tensor], labels: Tensor, count: int) -> None:
        pretrained, aligned = features
        self.looking.fit(pretrained, labels, count)
        self.pretrained.fit(pretrained, labels, count)
        self.aligned.fit(aligned, labels, count)
        device = pretrained.device
        width = self.pretrained.axes.shape[1] + self.aligned.axes.shape[1]
        s = self.settings
        self.memory = ShapeMemory(width, s.shape, min(s.shape_rank, width)).to(device)
        self.known = self.known.new_zeros(0, self.looking.axes.shape[1])

    # -- both features ----------------------------------------------------------------------------

    def infer(self, tokens: Tokens) -> Outputs:
        """Join both features to one of unit length; score by the memory once there is one."""
        outputs = super().infer(tokens)
        pretrained = F.normalize(self.teacher(tokens), dim=1)
        joined = HALF * torch.cat([pretrained, outputs.features], dim=1)
        both = Outputs(joined, outputs.scores, outputs.embeddings)
        if not len(self.memory):
            return both
        points = self._points(both)
        # Densities in many dimensions are far too sure of themselves: as soft as those of EM.
        softness = self.settings.temperature * points.shape[1] / self.known.shape[1]
        scores = self.memory(points) / softness
        labelled = super().num_classes
        scores[:, labelled:] -= self.settings.caution
        return replace(both, scores=scores.to(joined))

    def probabilities(self, scores: Tensor) -> Tensor:
        """Posterior of the softened log-densities; while stage 0 trains, as for cosines."""
        return scores.softmax(dim=1) if len(self.memory) else super().probabilities(scores)

    def _pair(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """The pretrained and the aligned feature, both of unit length."""
        pretrained, aligned = (outputs.features / HALF).chunk(2, dim=1)
        return pretrained, aligned

    def _points(self, outputs: Outputs) -> Tensor:
        """Images in both whitened spaces, each with half the say."""
        pretrained, aligned = self._pair(outputs)
        return HALF * torch.cat([self.pretrained(pretrained), self.aligned(aligned)], dim=1)

    def weights(self) -> None:
        """None: Gaussians have no weight vectors."""
