"""Nearest class mean: no gradient step, new classes by k-means beside the known means."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.methods.base import LabelledStage, Method, MethodSettings, Outputs, Stage, infer_all
from goal.methods.parts.heads import novelty_centroids
from goal.numerics.clustering import class_means, kmeans_beside


class NearestMeanSettings(MethodSettings):
    """`rounds`: rounds of k-means at most."""

    rounds: int = Field(default=100, gt=0)


class NearestMean(Method):
    """One mean per class; the score of a class is the cosine with its mean."""

    Settings = NearestMeanSettings
    means: Tensor  # unit vectors, (K, D)

    def __init__(self, settings: NearestMeanSettings, tail: Tail) -> None:
        super().__init__(tail.requires_grad_(False))
        self.rounds = settings.rounds
        self.register_buffer("means", torch.empty(0, tail.width))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> "NearestMean":
        assert isinstance(settings, NearestMeanSettings)
        return cls(settings, tail)

    @property
    def num_classes(self) -> int:
        return len(self.means)

    def trains(self, index: int) -> bool:
        return False

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            new = class_means(features, stage.labels.to(features.device), stage.num_new)
        else:
            start = novelty_centroids(features, self.means, stage.num_new, rng)
            new = kmeans_beside(features, self.means, start, self.rounds)
        self.means = torch.cat([self.means, F.normalize(new, dim=1)])

    def infer(self, tokens: Tokens) -> Outputs:
        features = F.normalize(self.tail(tokens), dim=1)
        return Outputs(features, features @ self.means.T)
