"""GOAL: geometrically optimal alignment on a fixed simplex ETF (Han et al., AAAI 2026).

    stage 0:  L = L_Align^s + (1 - lambda_rep) InfoNCE + lambda_rep SupCon + CE
    stage t:  L = lambda_A L_Align^u + InfoNCE + self-distillation - epsilon H(mean prediction)

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

from goal.backbone.tail import ClsTail
from goal.clustering import (
    assign,
    assign_greedily,
    class_means,
    kmeans,
    lowest_per_class,
    overlap,
    part_of,
)
from goal.geometry import UNOWNED, VertexLedger
from goal.losses.alignment import dot_alignment
from goal.losses.classification import (
    entropy,
    negative_group_entropy,
    negative_mean_entropy,
)
from goal.methods.base import (
    Batch,
    ConfidentSet,
    LabelledBatch,
    LabelledStage,
    MethodSettings,
    Outputs,
    Stage,
    infer_all,
)
from goal.methods.parametric import BASE_KEYS, Parametric, RetentionSettings, Views
from goal.tokens import Tokens


class GoalSettings(RetentionSettings):
    """Settings of GOAL; the names in brackets are the paper's ([lambda_rep] is `sup_con_weight`).

    Attributes:
        supervised_alignment: Align labelled embeddings at stage 0 (Table 4, first column).
        unsupervised_alignment: Align confident new samples later (Table 4, second column).
        alignment_weight: Weight of the unsupervised alignment [lambda_A].
        base_alignment_weight: Weight of the supervised alignment.
        alpha: Share of candidates, lowest entropy first, that count as confident [alpha].
        num_vertices: Vertices of the simplex [K]; by default all classes of the protocol.
        classifier_space: Where classifier and k-means live.
        base_assignment: How base classes get their vertices.
        base_self_distillation: Add view-to-view self-distillation at stage 0.
        confidence: Rank candidates per predicted new class, or all samples at once.
        clusters: Cluster the confident set by k-means, or trust the predicted class.
        matching: How clusters choose free vertices.
        warmup_epochs: Epochs before the first confident set.
        refresh_every: Epochs between confident sets.
        entropy_form: Entropy of the mean prediction in groups, or over all classes.
        entropy_weight: Its weight [epsilon].
        align_known: Also pull confident samples of known classes to the vertices they own.
        predict_with: Classifier, nearest vertex, or the mean of both.
    """

    supervised_alignment: bool = True
    unsupervised_alignment: bool = True
    alignment_weight: float = Field(default=0.7, ge=0)
    base_alignment_weight: float = Field(default=1.0, ge=0)
    alpha: float = Field(default=0.7, gt=0, le=1)
    num_vertices: int | None = Field(default=None, ge=2)
    classifier_space: Literal["backbone", "projector"] = "backbone"
    base_assignment: Literal["identity", "hungarian"] = "identity"
    base_self_distillation: bool = False
    confidence: Literal["per_class", "global"] = "per_class"
    clusters: Literal["kmeans", "by_prediction"] = "kmeans"
    matching: Literal["hungarian", "greedy"] = "hungarian"
    warmup_epochs: int = Field(default=2, ge=0)
    refresh_every: int = Field(default=5, gt=0)
    entropy_form: Literal["groups", "global"] = "groups"
    entropy_weight: float = Field(default=1.0, ge=0)
    align_known: bool = False
    predict_with: Literal["classifier", "vertices", "both"] = "classifier"


LITERAL = {
    "confidence": "global",
    "entropy_form": "global",
    "replay_weight": 0.0,
    "distillation_weight": 0.0,
}


class Goal(Parametric):
    """GOAL's two objectives and the bookkeeping of vertices between them."""

    Settings = GoalSettings
    base_keys = BASE_KEYS | {
        "supervised_alignment",
        "base_alignment_weight",
        "num_vertices",
        "classifier_space",
        "base_assignment",
        "base_self_distillation",
        "entropy_weight",
    }
    slots: Tensor  # per image of the stage: the vertex it is pulled to, or UNOWNED

    def __init__(
        self, settings: GoalSettings, tail: ClsTail, capacity: int, rng: torch.Generator
    ) -> None:
        on_projector = settings.classifier_space == "projector"
        super().__init__(settings, tail, rng, settings.projector_out if on_projector else None)
        self.settings = settings
        seed = int(torch.randint(2**31, (), generator=rng))
        vertices = settings.num_vertices or max(capacity, 2)
        self.ledger = VertexLedger(vertices, settings.projector_out, seed)
        self.register_buffer("slots", torch.empty(0, dtype=torch.int64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: ClsTail, capacity: int, rng: torch.Generator
    ) -> "Goal":
        """Construct GOAL for at most `capacity` classes, unless its settings say more."""
        assert isinstance(settings, GoalSettings)
        return cls(settings, tail, capacity, rng)

    # -- a stage begins ---------------------------------------------------------------------------

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Grow the classifier and forget the confident set; base classes get their vertices."""
        self.ledger.require_free(stage.num_new)
        super().begin_stage(stage, rng)
        self.slots = torch.full((len(stage.tokens),), UNOWNED, device=self.slots.device)
        if isinstance(stage, LabelledStage):
            self._claim_base(stage)

    def _claim_base(self, stage: LabelledStage) -> None:
        """Give class k the k-th vertex, or each class the best match of its mean embedding."""
        classes = torch.arange(stage.num_new, device=self.slots.device)
        vertices = classes
        if self.settings.base_assignment == "hungarian":
            embeddings = infer_all(self, stage.tokens).embeddings
            assert embeddings is not None
            means = class_means(embeddings, stage.labels.to(embeddings.device), stage.num_new)
            vertices = assign(means @ self.ledger.vertices.T)
        self.ledger.claim(classes, vertices)

    # -- the objectives ---------------------------------------------------------------------------

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """The base objective for labelled batches, the incremental one for all others."""
        views = self.see(batch)
        if isinstance(batch, LabelledBatch):
            return self._base_objective(views, batch.labels)
        return self._incremental_objective(views, batch, rng)

    def _base_objective(self, views: Views, labels: Tensor) -> dict[str, Tensor]:
        """L_Base = L_Align^s + L_rep^Base + L_cls, over both views."""
        s, both = self.settings, labels.repeat(2)
        terms = self.base_contrast(views, labels)
        terms["classification"] = self.cross_entropy(views.scores, both)
        if s.supervised_alignment:
            aligned = dot_alignment(views.embeddings, self.ledger.directions(both))
            terms["alignment"] = s.base_alignment_weight * aligned
        if s.base_self_distillation:
            terms["self_distillation"] = self.view_distillation(views)
            terms["entropy"] = s.entropy_weight * self._mean_entropy(views, known=0)
        return terms

    def _incremental_objective(
        self, views: Views, batch: Batch, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """L_Inc = lambda_A L_Align^u + L_rep^Inc + L_cls^u, plus retention where it is on."""
        s = self.settings
        terms = {
            "self_distillation": self.view_distillation(views),
            "entropy": s.entropy_weight * self._mean_entropy(views, known=len(self.prototypes)),
            "contrast": self.contrast(views),
        }
        slots = self.slots[batch.positions].repeat(2)
        chosen = slots != UNOWNED
        if bool(chosen.any()):
            aligned = dot_alignment(views.embeddings[chosen], self.ledger.vertices[slots[chosen]])
            terms["alignment"] = s.alignment_weight * aligned
        return terms | self.retention(s, batch, views, rng)

    def _mean_entropy(self, views: Views, known: int) -> Tensor:
        probabilities = self.probabilities(views.scores)
        if self.settings.entropy_form == "groups" and known:
            return negative_group_entropy(probabilities, known)
        return negative_mean_entropy(probabilities)

    # -- the confident set ----------------------------------------------------------------------

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Refresh the confident set every few epochs, once the new heads have warmed up."""
        super().begin_epoch(stage, epoch, rng)
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
            self._claim_new(outputs.embeddings[confident], clusters, stage)
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

    def _claim_new(self, embeddings: Tensor, clusters: Tensor, stage: Stage) -> None:
        """Match clusters to free vertices, once per stage: least displacement, then for ever."""
        classes = torch.arange(stage.num_known, stage.num_seen, device=clusters.device)
        if bool((self.ledger.vertex_of(classes) != UNOWNED).all()):
            return
        free = self.ledger.free()
        similarity = class_means(embeddings, clusters, stage.num_new)
        similarity = similarity @ self.ledger.vertices[free].T
        match = assign if self.settings.matching == "hungarian" else assign_greedily
        self.ledger.claim(classes, free[match(similarity)])

    # -- a stage ends, and afterwards -------------------------------------------------------------

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure prototypes; new classes that own no vertex yet claim one now."""
        outputs = infer_all(self, stage.tokens)
        assert outputs.scores is not None and outputs.embeddings is not None
        if stage.index > 0:
            likely = outputs.scores[:, stage.num_known :].argmax(dim=1)
            self._claim_new(outputs.embeddings, likely, stage)
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

    def space(self, outputs: Outputs) -> Tensor:
        """Features, or embeddings if the classifier lives on the projector."""
        if self.settings.classifier_space == "backbone":
            return outputs.features
        assert outputs.embeddings is not None
        return outputs.embeddings

    # -- diagnostics ------------------------------------------------------------------------------

    def weights(self) -> Tensor | None:
        """Classifier weights, where they live in feature space."""
        on_backbone = self.settings.classifier_space == "backbone"
        return super().weights() if on_backbone else None

    def directions(self) -> Tensor:
        """Vertices of all classes known so far."""
        return self.ledger.directions(torch.arange(self.num_classes, device=self.slots.device))

    def confident_set(self) -> ConfidentSet | None:
        """Samples that were aligned to vertices in the last epochs of the stage."""
        positions = (self.slots != UNOWNED).nonzero().flatten()
        if not len(positions):
            return None
        return ConfidentSet(positions, self.ledger.owners[self.slots[positions]])
