"""GM: grow and merge (Zhang et al., NeurIPS 2022).

    stage 0:  L = (1 - lambda) InfoNCE + lambda SupCon + CE
    grow:     L = BCE(pairs) + CE(pseudo-labels) + MSE(views)   on the novel part of the stage
                  + InfoNCE
    merge:    static <- 0.99 static + 0.01 dynamic, the new heads join the known ones, and
              L = CE(features drawn from the Gaussians of all classes)

The dynamic branch is free to learn what is new and may forget what is known; the static branch
carries the known classes and follows it slowly. Which images are novel is decided before the
stage: those whose largest cosine to any class prototype belongs to the lower part of a
two-component mixture.

Deviation: points the source leaves open.
    - The published split knows the ratio of novel images; a mixture stands in for it.
    - The self-supervised learning that shall keep features diverse is InfoNCE on a projector, as
      in every method here, on all images; stage 0 is that of the other methods, too.
    - A stage's epochs are divided between the phases, half and half (`grow_share`).
    - The static branch follows once per stage, at the merge. Once per step it would be the dynamic
      branch of a hundred steps ago: nothing static about it. Once per epoch it takes over a third
      of it within 40 epochs, while the Gaussians of known classes stay behind.
    - New heads start from the k-means centroids of the novel part, and these clusters are the
      pseudo-labels: the heads' own choices, made again and again, confirm themselves until one head
      has them all. The heads are rows of the classifier from the start of the stage on; while they
      grow they compete with each other only, and when they join the known ones they start again
      from the means of their classes in the static branch.
    - Pairs are alike by the cosine of the dynamic features, not by rank statistics, which need
      features behind a ReLU; the threshold is measured on labelled images (`likeness`).
    - Gaussians (this is the variant without exemplars) have a diagonal variance and live in the
      space of unit features. Those of new classes come from the merged branch's features and the
      dynamic branch's labels of the novel part.
    - Rehearsal runs in both phases: while new heads grow, it keeps the known ones in place.
    - All weights are 1. After a stage one branch is left, and the next dynamic branch starts there.
"""

from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from goal.backbone.tail import Tail
from goal.losses.pairwise import alike_by_cosine, consistency, pairwise_bce
from goal.methods.base import Batch, LabelledBatch, LabelledStage, MethodSettings, Stage, infer_all
from goal.methods.parts.class_gaussians import ClassGaussians
from goal.methods.parts.heads import random_directions
from goal.methods.parts.likeness import break_even_cosine
from goal.methods.parts.parametric import BASE_KEYS, Parametric, ParametricSettings
from goal.numerics.clustering import kmeans, split_high


class GMSettings(ParametricSettings):
    """Settings of GM.

    Attributes:
        grow_share: Share of a stage's epochs that grows; the rest merges.
        pair_threshold: Smallest cosine of a positive pair; None measures it when stage 0 ends.
        pair_weight: Weight of the pairs.
        pseudo_label_weight: Weight of the pseudo-labels.
        consistency_weight: Weight of the views' consistency.
        contrast_weight: Weight of InfoNCE while growing.
        momentum: What the static branch keeps of itself when the dynamic one merges into it.
        replay_per_class: Features drawn per class and step.
    """

    grow_share: float = Field(default=0.5, gt=0, le=1)
    pair_threshold: float | None = Field(default=None, ge=-1, le=1)
    pair_weight: float = Field(default=1.0, ge=0)
    pseudo_label_weight: float = Field(default=1.0, ge=0)
    consistency_weight: float = Field(default=1.0, ge=0)
    contrast_weight: float = Field(default=1.0, gt=0)
    momentum: float = Field(default=0.99, ge=0, le=1)
    replay_per_class: int = Field(default=2, gt=0)


class GM(Parametric):
    """A dynamic tail that grows, and a static one, kept as one vector, that it merges into."""

    Settings = GMSettings
    base_family = "supervised"
    base_keys = BASE_KEYS - {"teacher_temperature"}
    threshold: Tensor  # smallest cosine of a positive pair
    static: Tensor  # what trains in the tail, as it was before the stage, as one vector
    named: Tensor  # per image of the stage: its new class (from 0) if it counts as novel, else -1

    def __init__(self, settings: GMSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.settings = settings
        self.gaussians = ClassGaussians(tail.width)
        self.register_buffer("threshold", torch.ones(()))
        self.register_buffer("static", torch.empty(0))
        self.register_buffer("named", torch.empty(0, dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter, since the classifier grows."""
        assert isinstance(settings, GMSettings)
        return cls(settings, tail, rng)

    @property
    def growing(self) -> bool:
        """Whether the stage's classes still wait for the merge, which gives them Gaussians."""
        return len(self.gaussians) < self.num_classes

    # -- stages -----------------------------------------------------------------------------------

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Split off the novel part, append a head per cluster of it, free the dynamic branch."""
        if stage.index == 0:
            super().begin_stage(stage, rng)
            return
        features = infer_all(self, stage.tokens).features
        known = F.normalize(self.gaussians.means, dim=1)
        novel = split_high(1 - (features @ known.T).amax(dim=1), rng)
        clusters = min(stage.num_new, int(novel.sum()))
        labels, centres = kmeans(features[novel], clusters, rng)
        spare = random_directions(features, known, stage.num_new - clusters, rng)
        self.classifier.grow(torch.cat([F.normalize(centres, dim=1), spare]))
        self.named = torch.full((len(features),), -1, device=features.device)
        self.named[novel] = labels
        self.static = nn.utils.parameters_to_vector(self._dynamic()).detach()

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Merge when it is time."""
        grown = epoch > 0 and epoch >= self.settings.grow_share * stage.epochs
        if grown and stage.index > 0 and self.growing:
            self._merge(stage)

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective for labelled batches; the terms of the current phase for others."""
        if isinstance(batch, LabelledBatch):
            return self.supervised_objective(self.see(batch), batch.labels)
        drawn, classes = self.gaussians.sample(self.settings.replay_per_class, rng)
        rehearsal = {"replay": self.cross_entropy(self.classifier(drawn), classes)}
        return rehearsal | self._growth(batch) if self.growing else rehearsal

    def _growth(self, batch: Batch) -> dict[str, Tensor]:
        """InfoNCE; on novel images also pairs, pseudo-labels and consistency of the new heads."""
        s, views = self.settings, self.see(batch)
        terms = {"contrast": s.contrast_weight * self.contrast(views)}
        named = self.named[batch.positions].repeat(2)
        novel = named >= 0
        if bool(novel.any()):
            scores = views.scores[novel, len(self.gaussians) :]
            first, second = self.probabilities(scores).chunk(2)
            alike = alike_by_cosine(views.features[novel][: len(first)], float(self.threshold))
            copied = self.cross_entropy(scores, named[novel])
            terms["pairs"] = s.pair_weight * pairwise_bce(first, second, alike)
            terms["pseudo_labels"] = s.pseudo_label_weight * copied
            terms["consistency"] = s.consistency_weight * consistency(first, second)
        return terms

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure the Gaussians of base classes; merge what has not been merged yet."""
        if isinstance(stage, LabelledStage):
            features = infer_all(self, stage.tokens).features
            weights = F.normalize(self.classifier.weight.detach(), dim=1)
            labels, given = stage.labels.to(features.device), self.settings.pair_threshold
            found = break_even_cosine(features, labels, rng) if given is None else given
            self.threshold.fill_(found)
            self.gaussians.remember(features, labels, weights)
        elif self.growing:
            self._merge(stage)

    # -- the two branches -------------------------------------------------------------------------

    def _dynamic(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.tail.parameters() if parameter.requires_grad]

    @torch.no_grad()
    def _merge(self, stage: Stage) -> None:
        """Name the novel part by the dynamic branch, then go on with the static one.

        The static branch moves a little towards the dynamic one on that occasion.
        """
        scores = infer_all(self, stage.tokens).scores
        assert scores is not None
        novel = self.named >= 0
        named = scores[novel, stage.num_known :].argmax(dim=1)
        dynamic = self._dynamic()
        grown = nn.utils.parameters_to_vector(dynamic)
        self.static = self.static.lerp(grown, 1 - self.settings.momentum)
        pieces = self.static.split([parameter.numel() for parameter in dynamic])
        for parameter, piece in zip(dynamic, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))
        features = infer_all(self, stage.tokens).features[novel]
        heads = self.classifier.weight[stage.num_known :]
        self.gaussians.remember(features, named, F.normalize(heads, dim=1))
        heads.copy_(F.normalize(self.gaussians.means[stage.num_known :], dim=1))
