"""GOAL+: the frozen feature, and a memory that cannot forget. Ours.

    stage 0:  whiten the pretrained feature by what labelled classes look like inside; remember
              each class as a Gaussian: its mean, and a little of its own shape
    stage t:  find new classes beside the known ones, which stay where they are (`discovery`), and
              remember them likewise
    predict:  argmax_c log N(x; mean_c, A_c), less a little for discovered classes, which were
              learned from guesses

No gradient step anywhere: fitting costs one pass of the backbone, and what is left is linear
algebra on a table of features.

Three forms of GOAL's alignment, by the setting `alignment`:

    none      the pretrained feature alone
    analytic  beside it the closed form of L_Align^s for a linear map: ridge regression from the
              whitened feature to the vertex of its class, W = (X'X + gamma I)^-1 X'P; every class
              owns a vertex as long as there are any
    trained   beside it the feature that GOAL's stage 0 trains (`goal_plus_trained`)

docs/decisions/0013-goal-plus.md has what was tried and how it was chosen: by rehearsal inside
stage 0, without test images or novel classes.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens, TokenSource, device_of, drawn
from goal.methods.base import AskedStage, LabelledStage, Method, MethodSettings, Outputs, Stage
from goal.methods.goal_plus_trained import TrainedGoalPlus
from goal.methods.parts.asking import Asking
from goal.methods.parts.feature_memory import FeatureMemory
from goal.methods.parts.goal_plus_settings import GoalPlusSettings
from goal.methods.parts.strangeness import some_of_each
from goal.methods.parts.vertex_ridge import VertexRidge
from goal.numerics.simplex import VertexLedger

LEARNED = (
    100_000  # images that a stage's classes are learned from; more change nothing (benchmarks)
)
_BATCH = 4096


class GoalPlus(Method):
    """One frozen feature, one memory."""

    Settings = GoalPlusSettings
    needs_vertices = False

    named: Tensor  # what a person who was asked calls each class, -1 for nothing yet, (K,)

    def __init__(
        self, settings: GoalPlusSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> None:
        super().__init__(tail)
        self.settings = settings
        self.ridge: VertexRidge | None = None
        if settings.alignment == "analytic":
            seed = int(torch.randint(2**31, (), generator=rng))
            vertices = settings.num_vertices or max(capacity, 2)
            self.ridge = VertexRidge(vertices, max(vertices, tail.width), settings.ridge, seed)
        self.memory = FeatureMemory(settings, 2 if self.ridge else 1)
        self.register_buffer("named", torch.zeros(0, dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Method:
        """Construct the form that the settings ask for."""
        assert isinstance(settings, GoalPlusSettings)
        form = cls if settings.frozen else TrainedGoalPlus
        return form(settings, tail, capacity, rng)

    @property
    def num_classes(self) -> int:
        """Classes in memory."""
        return len(self.memory)

    @property
    def ledger(self) -> VertexLedger | None:
        """Which class owns which vertex, in the analytic form."""
        return self.ridge.ledger if self.ridge else None

    def trains(self, index: int) -> bool:
        """Never."""
        return False

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Fit the spaces and remember base classes, or discover new ones and remember them."""
        if isinstance(stage, LabelledStage):
            chosen = some_of_each(stage.labels, LEARNED)
            features = self._features(stage.tokens, chosen)
            labels = stage.labels[chosen].to(features.device)
            if self.ridge:
                self.ridge.fit(features, labels, stage.num_new)
            self.memory.fit(self._all(features), labels, stage.num_new)
            self.named = torch.arange(stage.num_new)
            return
        chosen = drawn(stage.tokens, LEARNED, rng)
        features = self._features(stage.tokens, chosen)
        found = self.memory.discover(self._all(features), stage.num_new, rng)
        shares = found.shares_NM
        if isinstance(stage, AskedStage) and stage.person.left:
            asking = Asking(self.memory, self._all(features), stage.num_known, shares, self.named)
            random = rng if self.settings.asking == "random" else None
            self.memory, shares, self.named = asking.run(stage.person, chosen, random)
        if self.ridge:
            classes = shares.argmax(dim=1)
            self.ridge.claim(features, classes, stage.num_known, stage.num_new)

    @torch.no_grad()
    def _features(self, tokens: TokenSource, positions: Tensor) -> Tensor:
        """Frozen features of some images."""
        device = device_of(self)
        parts = [self._unit(tokens.clean(part).to(device)) for part in positions.split(_BATCH)]
        return torch.cat(parts)

    def _unit(self, tokens: Tokens) -> Tensor:
        return self._sized(self.tail(tokens))

    def _sized(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1) if self.settings.unit_length else features

    @torch.no_grad()
    def deciding(self, features: Tensor) -> Sequence[Tensor]:
        """What decides, of frozen features as the backbone gives them."""
        return self._all(self._sized(features.to(device_of(self))))

    @torch.no_grad()
    def infer(self, tokens: Tokens) -> Outputs:
        """Unit features, their place among the vertices if there are any, and scores."""
        features = self._unit(tokens)
        embeddings = self.ridge(features) if self.ridge and len(self.memory) else None
        if not len(self.memory):
            return Outputs(features, None, embeddings)
        scores = self.memory(self._all(features)).to(features)
        return Outputs(features, scores, embeddings)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Posterior of the softened log-densities."""
        return scores.softmax(dim=1)

    def strangeness(self, scores: Tensor) -> Tensor | None:
        """Share of known images that are as strange as each image, or more."""
        return self.memory.strangeness(scores)

    @property
    def usual_gap(self) -> float:
        """How far apart labelled images usually are."""
        return float(self.memory.gap)

    @classmethod
    def carried_over(cls, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """States of before strangeness was measured and people were asked."""
        return {"named": torch.zeros(0, dtype=torch.int64), **FeatureMemory.carried_over(state)}

    def _all(self, features: Tensor) -> Sequence[Tensor]:
        """What decides: the pretrained feature, and the aligned one if there is any."""
        return [features, self.ridge(features)] if self.ridge else [features]
