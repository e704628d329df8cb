"""VanillaGCD: contrast and k-means (Vaze et al., "Generalized Category Discovery", CVPR 2022).

    stage 0:  L = (1 - lambda) InfoNCE + lambda SupCon
    stage t:  L = InfoNCE

There is no classifier and nothing against forgetting; prediction is k-means with the current
number of classes on the features of the given images.

Deviation: GCD clusters by semi-supervised k-means, which holds labelled images in their clusters;
a continual run has no labelled images left after stage 0, so k-means is plain, at every stage.
The contrast of stage t has weight 1, not 1 - lambda: there is no supervised part to share with.
"""

from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.losses.contrastive import info_nce, sup_con
from goal.methods.base import Batch, LabelledBatch, MethodSettings, Outputs, Projector
from goal.methods.kmeans import Clustering, ClusteringSettings


class VanillaGCDSettings(ClusteringSettings):
    """Settings of VanillaGCD; [lambda] is the paper's name.

    Attributes:
        projector_hidden: Hidden width of the projector.
        projector_out: Width of the embedding.
        sup_con_weight: Share of the supervised contrast at stage 0 [lambda].
        contrast_temperature: Temperature of InfoNCE.
        sup_con_temperature: Temperature of the supervised contrast.
    """

    projector_hidden: int = Field(default=2048, gt=0)
    projector_out: int = Field(default=768, gt=1)
    sup_con_weight: float = Field(default=0.35, ge=0, le=1)
    contrast_temperature: float = Field(default=1.0, gt=0)
    sup_con_temperature: float = Field(default=0.07, gt=0)


class VanillaGCD(Clustering):
    """GCD's representation loss on a projector, and k-means on the features below it."""

    Settings = VanillaGCDSettings

    def __init__(self, settings: VanillaGCDSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail)
        self.settings = settings
        self.projector = Projector(
            tail.width, settings.projector_hidden, settings.projector_out, rng
        )

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter without a classifier."""
        assert isinstance(settings, VanillaGCDSettings)
        return cls(settings, tail, rng)

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features and embeddings."""
        features = self.tail(tokens)
        embeddings = F.normalize(self.projector(features), dim=1)
        return Outputs(F.normalize(features, dim=1), None, embeddings)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embeddings of the first views and of the second ones."""
        embeddings = self.infer(Tokens.cat([batch.first, batch.second])).embeddings
        assert embeddings is not None
        first, second = embeddings.chunk(2)
        return first, second

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """Both contrasts for labelled batches, the unsupervised one for all others."""
        first, second = self.embed(batch)
        contrast = info_nce(first, second, self.settings.contrast_temperature)
        if not isinstance(batch, LabelledBatch):
            return {"contrast": contrast}
        share = self.settings.sup_con_weight
        supervised = sup_con(first, second, batch.labels, self.settings.sup_con_temperature)
        return {"contrast": (1 - share) * contrast, "sup_contrast": share * supervised}
