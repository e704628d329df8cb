"""Freeze and Cluster: k-means names images, only the classifier learns.

Zhang, Yu, Gu and He, "Freeze and Cluster: A Simple Baseline for Rehearsal-Free Continual Category
Discovery" (arXiv 2503.09106, 2025). Its thesis is that of GOAL+, too: with a pretrained backbone,
unlabelled images make the feature worse, not better.

    stage 0:  L = (1 - lambda) InfoNCE + lambda SupCon + CE; then the feature is frozen for good
    stage t:  k-means names the images of new classes, and
              L = CE(named images) + CE(features drawn from the Gaussians of known classes),
              for the classifier alone

Deviation: points the source leaves open, or where this protocol differs.
    - A stage holds known classes, too. K-means has as many clusters as there are classes, and those
      least like any known class are the new ones (Happy's head initialisation); images in other
      clusters have no name, and teach nothing.
    - The paper's abstract and summaries, all that could be read here, do not say how the
      classifier keeps known classes. Without anything it would forget them at once: Gaussians with
      diagonal variance in the space of unit features, measured when a class comes, stand in
      for their images, two draws per class and step, as in FRoST.
    - New heads start from the centroids of their clusters.
    - How many classes are new is known, or counted by known ones (`protocol.estimate_new`); the
      counting is this package's own.
    - Stage 0 is that of the other methods; the classifier is one of cosines.
"""

from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.methods.base import Batch, LabelledBatch, LabelledStage, MethodSettings, Stage, infer_all
from goal.methods.parts.class_gaussians import ClassGaussians
from goal.methods.parts.heads import farthest, random_directions
from goal.methods.parts.parametric import BASE_KEYS, Parametric, ParametricSettings
from goal.numerics.clustering import kmeans


class FreezeAndClusterSettings(ParametricSettings):
    """Settings of Freeze and Cluster.

    Attributes:
        replay_per_class: Features drawn per known class and step.
        restarts: Starts of k-means, the best of which is kept.
    """

    replay_per_class: int = Field(default=2, gt=0)
    restarts: int = Field(default=10, gt=0)


class FreezeAndCluster(Parametric):
    """A classifier on a feature that stage 0 made and nothing changes any more."""

    Settings = FreezeAndClusterSettings
    base_family = "supervised"
    base_keys = BASE_KEYS - {"teacher_temperature"}
    named: Tensor  # per image of the stage: its new class (from 0), or -1

    def __init__(
        self, settings: FreezeAndClusterSettings, tail: Tail, rng: torch.Generator
    ) -> None:
        super().__init__(settings, tail, rng)
        self.settings = settings
        self.gaussians = ClassGaussians(tail.width)
        self.register_buffer("named", torch.empty(0, dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter, since the classifier grows."""
        assert isinstance(settings, FreezeAndClusterSettings)
        return cls(settings, tail, rng)

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Cluster the images, name those of new clusters, and append their heads."""
        if stage.index == 0:
            super().begin_stage(stage, rng)
            return
        features = infer_all(self, stage.tokens).features
        known = F.normalize(self.gaussians.means, dim=1)
        clusters = min(stage.num_seen, len(features))
        labels, centres = kmeans(features, clusters, rng, restarts=self.settings.restarts)
        centres = F.normalize(centres, dim=1)
        new = farthest(centres, known, stage.num_new)
        number = torch.full((clusters,), -1, device=features.device)
        number[new] = torch.arange(len(new), device=features.device)
        self.named = number[labels]
        spare = random_directions(features, known, stage.num_new - len(new), rng)
        self.classifier.grow(self.settings.head_length * torch.cat([centres[new], spare]))

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective for labelled batches; for others the classifier's alone."""
        if isinstance(batch, LabelledBatch):
            return self.supervised_objective(self.see(batch), batch.labels)
        drawn, classes = self.gaussians.sample(self.settings.replay_per_class, rng)
        terms = {"replay": self.cross_entropy(self.classifier(drawn), classes)}
        named = self.named[batch.positions].repeat(2)
        mine = named >= 0
        if bool(mine.any()):
            with torch.no_grad():
                features = F.normalize(self.tail(batch.first, batch.second), dim=1)
            scores = self.classifier(features[mine])
            terms["named"] = self.cross_entropy(scores, named[mine] + len(self.gaussians))
        return terms

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure the Gaussians of the stage's classes, by label or by name."""
        features = infer_all(self, stage.tokens).features
        classes = self.named
        if isinstance(stage, LabelledStage):
            classes = stage.labels.to(features.device)
        weights = F.normalize(self.classifier.weight.detach()[stage.num_known :], dim=1)
        self.gaussians.remember(features[classes >= 0], classes[classes >= 0], weights)
