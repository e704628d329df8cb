"""The floor: k-means on the frozen, pretrained backbone's features. Nothing is learned.

Prediction clusters the images it is given into as many parts as classes have been seen, so it is
transductive: it shows what the backbone alone can do.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import ClsTail
from goal.clustering import kmeans
from goal.methods.base import Method, MethodSettings, Outputs, Stage
from goal.tokens import Tokens


class FrozenKMeansSettings(MethodSettings):
    """Settings of the floor."""

    restarts: int = Field(default=10, gt=0)


class FrozenKMeans(Method):
    """Counts classes and clusters features."""

    Settings = FrozenKMeansSettings
    seen: Tensor
    seed: Tensor

    def __init__(self, settings: FrozenKMeansSettings, tail: ClsTail) -> None:
        super().__init__(tail.requires_grad_(False))
        self.settings = settings
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: ClsTail, capacity: int, rng: torch.Generator
    ) -> "FrozenKMeans":
        """Construct; capacity does not matter here."""
        assert isinstance(settings, FrozenKMeansSettings)
        return cls(settings, tail)

    @property
    def num_classes(self) -> int:
        """Classes seen so far."""
        return int(self.seen)

    def trains(self, stage: Stage) -> bool:
        """Never."""
        return False

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Count the stage's classes and draw its seed."""
        self.seen = torch.tensor(stage.num_seen)
        self.seed = torch.randint(2**31, (), generator=rng)

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute the pretrained feature."""
        return Outputs(F.normalize(self.tail(tokens), dim=1))

    def predict(self, outputs: Outputs) -> Tensor:
        """Cluster the given images."""
        rng = torch.Generator().manual_seed(int(self.seed))
        clusters = min(self.num_classes, len(outputs.features))
        return kmeans(outputs.features, clusters, rng, restarts=self.settings.restarts)[0]
