"""Class counts of a run that is not told how many new classes a stage brings.

Counting happens on the features of the pretrained backbone, which never change, so the means of
known classes stay true without any image. The method that learns the stage has no part in it.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tail import ClsTail
from goal.clustering import class_means
from goal.estimate_k import Spread, measure_known, new_clusters
from goal.randomness import stream
from goal.tokens import TokenSource

_BATCH = 512

Look = Callable[[int], tuple[TokenSource, Tensor | None]]


class Census:
    """Counts the classes of one stage after the other.

    Attributes:
        counts: Classes found at each stage so far; the first are the labelled ones.
        most: Largest number of new classes it will report for a stage.
    """

    def __init__(self, tail: ClsTail, most: int, seed: int) -> None:
        self.counts: list[int] = []
        self.most = most
        self._tail = copy.deepcopy(tail).requires_grad_(False).eval()
        self._seed = seed
        self._means_KD: Tensor
        self._spread: Spread

    def numbers(self, index: int, look: Look) -> tuple[int, int]:
        """Classes known before a stage, and new in it.

        Earlier stages that were not counted yet (after an interruption) are counted first, with
        the same result as before.

        Args:
            index: The stage, 1 or later.
            look: Gives the tokens of the images of a stage, and at stage 0 their labels.
        """
        for stage in range(len(self.counts), index + 1):
            tokens, labels = look(stage)
            self._count(self._features(tokens), labels)
        return sum(self.counts[:index]), self.counts[index]

    def _count(self, features: Tensor, labels: Tensor | None) -> None:
        if labels is not None:
            count = int(labels.max()) + 1
            self._means_KD, self._spread = measure_known(features, labels, count)
        else:
            rng = stream(self._seed, "census", len(self.counts))
            found = new_clusters(features, self._means_KD, self._spread, self.most, rng)
            clusters = torch.from_numpy(found)
            count = int(clusters.max()) + 1
            means = class_means(features[clusters >= 0], clusters[clusters >= 0], count)
            self._means_KD = torch.cat([self._means_KD, means])
        self.counts.append(count)

    @torch.no_grad()
    def _features(self, tokens: TokenSource) -> Tensor:
        device = next(self._tail.parameters()).device
        parts = torch.arange(len(tokens)).split(_BATCH)
        features = [self._tail(tokens.clean(part).to(device)).cpu() for part in parts]
        return F.normalize(torch.cat(features), dim=1)
