"""The counter of new classes, for experiments and models alike.

It works on the features of the pretrained backbone, which no stage changes, so the means of known
classes stay true without keeping any image. A stage's own classes are added as the method that
learned them sees them.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import SomeTokens, TokenSource, device_of, drawn
from goal.common.seeding import stream
from goal.counting.estimators import (
    LEAST,
    Count,
    WithinClass,
    candidates,
    measure_known,
    measured,
)
from goal.counting.familiar import CHANCE, Edge, chance_of_known, measure_edge
from goal.numerics.clustering import class_means

SAMPLE = 20_000  # images that are counted in
NOTED = 100_000  # labelled images that classes are measured in

_BATCH = 512
_PATIENCE = 10  # finer cuts that are tried after the best one


def most_new(images: int, free: int | None) -> int:
    """Largest number of new classes that a stage is searched for.

    Enough images for each to be a class, and no more than have room.

    Args:
        images: Images of the stage.
        free: Vertices without a class, where the method has any.
    """
    most = max(1, min(images, SAMPLE) // (2 * LEAST))
    return most if free is None else min(most, free)


class Counter:
    """Counts the new classes of one stage after the other.

    Attributes:
        means: Mean features of all classes that have images, (classes, D).
        within_class: How images of labelled classes lie about their means.
        edge: How far from their means images of labelled classes lie that were left out.
    """

    means: Tensor
    within_class: WithinClass
    edge: Edge

    def __init__(self, tail: Tail, seed: int) -> None:
        self._tail = copy.deepcopy(tail).requires_grad_(False).eval()
        self._seed = seed

    def count(self, tokens: TokenSource, index: int, most: int) -> Count:
        """Estimate how many classes, 0 to `most`, are new in the images of stage `index`."""
        rng = stream(self._seed, "estimate", index)
        some = SomeTokens(tokens, drawn(tokens, SAMPLE, rng))
        features, within = self._features(some), self.within_class
        chance = chance_of_known(features, self.means, within.within_DD, self.edge)
        found = measured(candidates(features, self.means, within, most, rng, _PATIENCE))
        # Only a single class may be the outskirts of known ones. Several never were, while the
        # nearest of many means is near to everything, and then the test sees nothing at all.
        if found.count == 1 and chance > CHANCE:
            return Count(0, found.count, min(1.0, 1 - CHANCE / chance))
        return found

    def note_labelled(self, tokens: TokenSource, labels: Tensor) -> None:
        """Measure the classes of stage 0."""
        count = int(labels.max()) + 1
        chosen = drawn(tokens, NOTED, stream(self._seed, "measure"))
        features, labels = self._features(SomeTokens(tokens, chosen)), labels[chosen]
        self.means, self.within_class = measure_known(features, labels, count)
        self.edge = measure_edge(features, labels, count)

    def note_found(self, tokens: TokenSource, classes: Tensor, num_known: int) -> None:
        """Add the classes of a later stage, as the method assigned its images."""
        new = classes.cpu() >= num_known
        if not bool(new.any()):
            return
        labels = classes.cpu()[new].unique(return_inverse=True)[1]
        found = class_means(self._features(tokens)[new], labels, int(labels.max()) + 1)
        self.means = torch.cat([self.means, found])

    def state_dict(self) -> dict[str, Any]:
        """What later stages need: tensors only."""
        return {
            "means": self.means,
            "within": self.within_class.within_DD,
            "gap": self.within_class.gap,
            "edge": self.edge.distance,
            "inside": self.edge.inside,
            "beyond": self.edge.beyond,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.means = state["means"]
        self.within_class = WithinClass(state["within"], state["gap"])
        nothing = torch.tensor(0)  # of a state of before it was measured
        self.edge = Edge(*(state.get(key, nothing) for key in ("edge", "inside", "beyond")))

    @torch.no_grad()
    def _features(self, tokens: TokenSource) -> Tensor:
        """Unit features of the pretrained backbone."""
        device = device_of(self._tail)
        parts = torch.arange(len(tokens)).split(_BATCH)
        features = [self._tail(tokens.clean(part).to(device)).cpu() for part in parts]
        return F.normalize(torch.cat(features), dim=1)
