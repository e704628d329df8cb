"""GOAL: geometrically optimal alignment on a fixed simplex ETF (Han et al., AAAI 2026).

    stage 0:  L = L_Align^s + (1 - lambda_rep) InfoNCE + lambda_rep SupCon + CE           (eq. 9)
    stage t:  L = lambda_A L_Align^u + InfoNCE + self-distillation - epsilon H(mean pred.)  (eq. 13)

Equations are numbered in the order in which the paper prints them: L_Align^s is eq. 4, InfoNCE 5,
SupCon 6, their sum 7, CE 8, the classifier's growth 10, self-distillation and entropy 11 and
L_Align^u 12; the simplex is eq. 1 to 3.

Every class owns a vertex of a simplex fixed in advance. Labelled embeddings are pulled to the
vertices of their classes; later, confident samples of new classes are clustered, the clusters are
matched to free vertices once per stage, and their embeddings are pulled there.

Deviation: the paper's text leaves much open; docs/decisions/0002-reading-of-goal.md lists every
point. The preset ``goal`` splits the entropy term into groups and adds prototype replay and
feature distillation (both from Happy), without which new classes collapse; ``goal-literal`` is
the text to the letter.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.losses.alignment import dot_alignment
from goal.losses.classification import entropy, negative_group_entropy
from goal.methods.base import (
    Batch,
    ConfidentSet,
    LabelledBatch,
    MethodSettings,
    Outputs,
    Stage,
    infer_all,
)
from goal.methods.parts.aligned_base import AlignedBase, AlignedBaseSettings
from goal.methods.parts.parametric import RetentionSettings, Views
from goal.numerics.clustering import assign, class_means, kmeans, lowest_per_class, overlap, part_of
from goal.numerics.simplex import UNOWNED


class GoalSettings(AlignedBaseSettings, RetentionSettings):
    """Settings of GOAL; the names in brackets are the paper's ([lambda_rep] is `sup_con_weight`).

    Attributes:
        unsupervised_alignment: Align confident new samples later (Table 4, second column).
        alignment_weight: Weight of the unsupervised alignment [lambda_A].
        alpha: Share of candidates, lowest entropy first, that count as confident [alpha].
        confidence: Rank candidates per predicted new class, or all samples at once.
        confident_loss: Pull confident samples to their vertices by the dot product, or by
            cross-entropy over all owned vertices, at the student's temperature.
        clusters: Cluster the confident set by k-means, or trust the predicted class.
        warmup_epochs: Epochs before the first confident set.
        refresh_every: Epochs between confident sets.
        entropy_form: Entropy of the mean prediction in groups, or over all classes.
        align_known: Also pull confident samples of known classes to the vertices they own.
        predict_with: Classifier, nearest vertex, or the mean of both.
    """

    head_init: Literal["farthest", "novelty", "random"] = "novelty"
    distillation_weight: float = Field(default=10.0, ge=0)
    unsupervised_alignment: bool = True
    alignment_weight: float = Field(default=0.7, ge=0)
    alpha: float = Field(default=0.7, gt=0, le=1)
    confidence: Literal["per_class", "global"] = "per_class"
    confident_loss: Literal["dot", "cross_entropy"] = "dot"
    clusters: Literal["kmeans", "by_prediction"] = "kmeans"
    warmup_epochs: int = Field(default=2, ge=0)
    refresh_every: int = Field(default=5, gt=0)
    entropy_form: Literal["groups", "global"] = "groups"
    align_known: bool = False
    predict_with: Literal["classifier", "vertices", "both"] = "classifier"


class Goal(AlignedBase):
    """GOAL's incremental objective and the bookkeeping of vertices in it."""

    Settings = GoalSettings
    settings: GoalSettings
    slots: Tensor  # per image of the stage: the vertex it is pulled to, or UNOWNED

    def __init__(
        self, settings: GoalSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> None:
        super().__init__(settings, tail, capacity, rng)
        self.register_buffer("slots", torch.empty(0, dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> "Goal":
        """Construct GOAL for at most `capacity` classes, unless its settings say more."""
        assert isinstance(settings, GoalSettings)
        return cls(settings, tail, capacity, rng)

    # -- a stage begins ---------------------------------------------------------------------------

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Grow the classifier and forget the confident set; base classes get their vertices."""
        super().begin_stage(stage, rng)
        self.slots = torch.full((len(stage.tokens),), UNOWNED, device=self.slots.device)

    # -- the objectives ---------------------------------------------------------------------------

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective for labelled batches, the incremental one for all others."""
        self._bind_heads()
        views = self.see(batch)
        if isinstance(batch, LabelledBatch):
            return self.base_objective(views, batch.labels)
        return self._incremental_objective(views, batch, rng)

    def _incremental_objective(
        self, views: Views, batch: Batch, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """L_Inc = lambda_A L_Align^u + L_rep^Inc + L_cls^u (eq. 13), plus retention if it is on."""
        s = self.settings
        terms = {
            "self_distillation": self.view_distillation(views),
            "entropy": s.entropy_weight * self._mean_entropy(views, known=len(self.prototypes)),
            "contrast": self.contrast(views),
        }
        slots = self.slots[batch.positions].repeat(2)
        chosen = slots != UNOWNED
        if bool(chosen.any()):
            aligned = self._alignment(self.alignable(views)[chosen], slots[chosen])
            terms["alignment"] = s.alignment_weight * aligned
        return terms | self.retention(s, batch, views, rng)

    def _alignment(self, embeddings: Tensor, slots: Tensor) -> Tensor:
        """L_Align^u, or cross-entropy over the vertices that have an owner."""
        if self.settings.confident_loss == "dot":
            return dot_alignment(embeddings, self.ledger.vertices[slots])
        owned = (self.ledger.owners != UNOWNED).nonzero().flatten()
        scores = embeddings @ self.ledger.vertices[owned].T
        return self.cross_entropy(scores, torch.searchsorted(owned, slots))

    def _mean_entropy(self, views: Views, known: int) -> Tensor:
        if self.settings.entropy_form == "groups":
            return negative_group_entropy(self.probabilities(views.scores), known)
        return self.mean_entropy(views)

    # -- the confident set ----------------------------------------------------------------------

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Refresh the confident set every few epochs, once the new heads have warmed up."""
        super().begin_epoch(stage, epoch, rng)
        self._bind_heads()
        since = epoch - self.settings.warmup_epochs
        due = since >= 0 and since % self.settings.refresh_every == 0
        if due and stage.index > 0 and self.settings.unsupervised_alignment:
            self._refresh(stage, rng)

    def _refresh(self, stage: Stage, rng: torch.Generator) -> None:
        """Choose confident samples, cluster them, and give each the vertex of its cluster."""
        outputs = infer_all(self, stage.tokens)
        assert outputs.scores is not None and outputs.embeddings is not None
        probabilities = self.probabilities(outputs.scores)
        confident = self._confident(probabilities, stage.num_known)
        self.slots.fill_(UNOWNED)
        if len(confident) >= stage.num_new:
            clusters = self._cluster(
                outputs.embeddings[confident], probabilities[confident], stage, rng
            )
            self.claim_new(outputs.embeddings[confident], clusters, stage)
            self.slots[confident] = self.ledger.vertex_of(stage.num_known + clusters)
        if self.settings.align_known:
            predicted = probabilities.argmax(dim=1)
            known = (predicted < stage.num_known).nonzero().flatten()
            known = lowest_per_class(known, predicted, entropy(probabilities), self.settings.alpha)
            self.slots[known] = self.ledger.vertex_of(predicted[known])

    def _confident(self, probabilities: Tensor, num_known: int) -> Tensor:
        """Positions of the alpha share with the lowest entropy, per new class or of all."""
        uncertainty, alpha = entropy(probabilities), self.settings.alpha
        if self.settings.confidence == "global":
            return uncertainty.argsort(stable=True)[: part_of(alpha, len(uncertainty))]
        predicted = probabilities.argmax(dim=1)
        candidates = (predicted >= num_known).nonzero().flatten()
        return lowest_per_class(candidates, predicted, uncertainty, alpha)

    def _cluster(
        self, embeddings: Tensor, probabilities: Tensor, stage: Stage, rng: torch.Generator
    ) -> Tensor:
        """Cluster the confident set into as many parts as there are new classes.

        k-means starts from the means of the predicted new classes (for one that nobody is
        predicted to be, from its likeliest sample); clusters are then named after the new class
        they overlap with most.
        """
        likely = probabilities[:, stage.num_known :]
        predicted = likely.argmax(dim=1)
        if self.settings.clusters == "by_prediction":
            return predicted
        start = class_means(embeddings, predicted, stage.num_new)
        empty = (torch.bincount(predicted, minlength=stage.num_new) == 0).nonzero().flatten()
        start[empty] = embeddings[likely[:, empty].argmax(dim=0)]
        clusters, _ = kmeans(embeddings, stage.num_new, rng, start=start)
        return assign(overlap(clusters, predicted, stage.num_new))[clusters]

    @torch.no_grad()
    def _bind_heads(self) -> None:
        """Put the stage's new heads (back) on the vertices they have claimed, if heads are bound.

        The optimiser may move them in a step; before the next use they are here again.
        """
        if self.settings.heads == "free" or not len(self.prototypes):
            return
        new = torch.arange(len(self.prototypes), self.num_classes, device=self.slots.device)
        bound = new[self.ledger.vertex_of(new) != UNOWNED]
        self.classifier.weight[bound] = self.ledger.directions(bound)

    # -- a stage ends, and afterwards -------------------------------------------------------------

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure prototypes; new classes that own no vertex yet claim one now."""
        self._bind_heads()
        outputs = infer_all(self, stage.tokens)
        assert outputs.scores is not None and outputs.embeddings is not None
        if stage.index > 0:
            likely = outputs.scores[:, stage.num_known :].argmax(dim=1)
            self.claim_new(outputs.embeddings, likely, stage)
        self.remember(stage, outputs)

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features and embeddings, and scores as `predict_with` says.

        Vertices speak only for classes that own one; before a stage's new classes do, the
        classifier alone decides.
        """
        outputs = super().infer(tokens)
        assert outputs.scores is not None and outputs.embeddings is not None
        way = self.settings.predict_with
        if way == "classifier" or len(self.prototypes) < self.num_classes:
            return outputs
        by_vertex = outputs.embeddings @ self.directions().T
        if way == "both":
            pair = self.probabilities(outputs.scores) + self.probabilities(by_vertex)
            return Outputs(outputs.features, pair / 2, outputs.embeddings)
        return Outputs(outputs.features, by_vertex, outputs.embeddings)

    # -- diagnostics ------------------------------------------------------------------------------

    def confident_set(self) -> ConfidentSet | None:
        """Samples that were aligned to vertices in the last epochs of the stage."""
        positions = (self.slots != UNOWNED).nonzero().flatten()
        if not len(positions):
            return None
        return ConfidentSet(positions, self.ledger.owners[self.slots[positions]])
