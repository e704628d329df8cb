"""Prediction by k-means, and the floor: k-means on the frozen, pretrained backbone's features.

Prediction clusters the images it is given into as many parts as classes have been seen, so it is
transductive. Methods that learn features but no classifier share it; where nothing is learned, it
shows what the backbone alone can do.

For single images every class also has a centroid: base classes by their labels, new ones by
k-means beside the known centroids, which stay where they are but for the way that features drift
while a stage is learned. Centroids never change what `predict` answers.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.methods.base import LabelledStage, Method, MethodSettings, Outputs, Stage, infer_all
from goal.methods.parts.heads import novelty_centroids
from goal.numerics.clustering import class_means, drifted, kmeans, kmeans_beside


class ClusteringSettings(MethodSettings):
    """Settings of methods that predict by k-means.

    Attributes:
        restarts: Starts of k-means, the best of which is kept.
    """

    restarts: int = Field(default=10, gt=0)


class Clustering(Method):
    """Base of methods that predict by k-means: counts classes and keeps a seed per stage."""

    seen: Tensor
    seed: Tensor
    centroids: Tensor  # unit vectors, (K, D)
    before: Tensor  # features of the stage's images as it begins; empty between stages

    def __init__(self, settings: ClusteringSettings, tail: Tail) -> None:
        super().__init__(tail)
        self.restarts = settings.restarts
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("centroids", torch.empty(0, tail.width))
        self.register_buffer("before", torch.empty(0, tail.width))

    @property
    def num_classes(self) -> int:
        """Classes seen so far."""
        return int(self.seen)

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Count the stage's classes, draw its seed, and note where its images lie before it."""
        self.seen = torch.tensor(stage.num_seen)
        self.seed = torch.randint(2**31, (), generator=rng)
        if stage.index > 0:
            self.before = infer_all(self, stage.tokens).features

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Give the stage's classes their centroids; known ones go with the drift of features."""
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            labels = stage.labels.to(features.device)
            self.centroids = F.normalize(class_means(features, labels, stage.num_new), dim=1)
            return
        known = F.normalize(drifted(self.centroids, self.before, features), dim=1)
        own = torch.Generator().manual_seed(int(self.seed))
        start = novelty_centroids(features, known, stage.num_new, own)
        new = kmeans_beside(features, known, start)
        self.centroids = torch.cat([known, F.normalize(new, dim=1)])
        self.before = self.before[:0]

    def predict(self, outputs: Outputs) -> Tensor:
        """Cluster the given images."""
        rng = torch.Generator().manual_seed(int(self.seed))
        clusters = min(self.num_classes, len(outputs.features))
        return kmeans(outputs.features, clusters, rng, restarts=self.restarts)[0]

    def class_scores(self, outputs: Outputs) -> Tensor:
        """Cosine with each class's centroid."""
        return outputs.features @ self.centroids.T


class FrozenKMeansSettings(ClusteringSettings):
    """Settings of the floor."""


class FrozenKMeans(Clustering):
    """Learns nothing."""

    Settings = FrozenKMeansSettings

    def __init__(self, settings: FrozenKMeansSettings, tail: Tail) -> None:
        super().__init__(settings, tail.requires_grad_(False))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> "FrozenKMeans":
        """Construct; capacity does not matter here."""
        assert isinstance(settings, FrozenKMeansSettings)
        return cls(settings, tail)

    def trains(self, index: int) -> bool:
        """Never."""
        return False

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute the pretrained feature."""
        return Outputs(F.normalize(self.tail(tokens), dim=1))
