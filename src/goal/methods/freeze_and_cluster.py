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
    - New heads start from the centroids of their clusters. The classifier learns from the frozen
      features of clean views, in steps of its own, when a stage ends.
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
        steps: Gradient steps of the classifier per stage.
        step_images: Named images per step.
        rate: Learning rate of these steps; it falls along a half cosine.
    """

    replay_per_class: int = Field(default=2, gt=0)
    restarts: int = Field(default=10, gt=0)
    steps: int = Field(default=500, ge=0)
    step_images: int = Field(default=128, gt=0)
    rate: float = Field(default=0.1, gt=0)


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

    def trains(self, index: int) -> bool:
        """At stage 0 only; the classifier's own steps need no views."""
        return index == 0

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective."""
        assert isinstance(batch, LabelledBatch)
        return self.supervised_objective(self.see(batch), batch.labels)

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

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Teach the classifier, then measure the Gaussians of the stage's classes."""
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            classes = stage.labels.to(features.device)
        else:
            mine = self.named >= 0
            features, classes = features[mine], self.named[mine]
            self._learn(features, classes, rng)
        weights = F.normalize(self.classifier.weight.detach()[stage.num_known :], dim=1)
        self.gaussians.remember(features, classes, weights)

    @torch.enable_grad()
    def _learn(self, features_ND: Tensor, named_N: Tensor, rng: torch.Generator) -> None:
        """Take the classifier's gradient steps on named images."""
        s, weight = self.settings, self.classifier.weight
        optimiser = torch.optim.SGD([weight], lr=s.rate, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(s.steps, 1))
        for _ in range(s.steps if len(named_N) else 0):
            chosen = torch.randint(len(named_N), (s.step_images,), generator=rng).to(named_N.device)
            optimiser.zero_grad()
            self.objective(features_ND[chosen], named_N[chosen], rng).backward()
            optimiser.step()
            schedule.step()
        weight.grad = None

    def objective(self, features_BD: Tensor, named_B: Tensor, rng: torch.Generator) -> Tensor:
        """Cross-entropy of named images, and of features drawn for known classes."""
        drawn, classes = self.gaussians.sample(self.settings.replay_per_class, rng)
        kept = self.cross_entropy(self.classifier(drawn), classes)
        new = named_B + len(self.gaussians)
        return kept + self.cross_entropy(self.classifier(features_BD), new)
