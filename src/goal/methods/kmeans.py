"""Prediction by k-means, and the floor: k-means on the frozen, pretrained backbone's features.

Prediction clusters the images it is given into as many parts as classes have been seen, so it is
transductive. Methods that learn features but no classifier share it; where nothing is learned, it
shows what the backbone alone can do.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import ClsTail
from goal.clustering import kmeans
from goal.methods.base import Method, MethodSettings, Outputs, Stage
from goal.tokens import Tokens


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

    def __init__(self, settings: ClusteringSettings, tail: ClsTail) -> None:
        super().__init__(tail)
        self.restarts = settings.restarts
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    @property
    def num_classes(self) -> int:
        """Classes seen so far."""
        return int(self.seen)

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Count the stage's classes and draw its seed."""
        self.seen = torch.tensor(stage.num_seen)
        self.seed = torch.randint(2**31, (), generator=rng)

    def predict(self, outputs: Outputs) -> Tensor:
        """Cluster the given images."""
        rng = torch.Generator().manual_seed(int(self.seed))
        clusters = min(self.num_classes, len(outputs.features))
        return kmeans(outputs.features, clusters, rng, restarts=self.restarts)[0]


class FrozenKMeansSettings(ClusteringSettings):
    """Settings of the floor."""


class FrozenKMeans(Clustering):
    """Learns nothing."""

    Settings = FrozenKMeansSettings

    def __init__(self, settings: FrozenKMeansSettings, tail: ClsTail) -> None:
        super().__init__(settings, tail.requires_grad_(False))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: ClsTail, capacity: int, rng: torch.Generator
    ) -> "FrozenKMeans":
        """Construct; capacity does not matter here."""
        assert isinstance(settings, FrozenKMeansSettings)
        return cls(settings, tail)

    def trains(self, stage: Stage) -> bool:
        """Never."""
        return False

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute the pretrained feature."""
        return Outputs(F.normalize(self.tail(tokens), dim=1))
