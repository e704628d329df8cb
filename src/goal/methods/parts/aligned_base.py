"""GOAL's stage 0, which its presets and GOAL+ share: labelled embeddings meet their vertices.

    L_Base = L_Align^s + (1 - lambda_rep) InfoNCE + lambda_rep SupCon + CE      (GOAL, eq. 9)

or, with ``base_form=happy``, Happy's stage 0 with the alignment added:

    L_Base = L_Align^s + (1 - lambda_rep) (InfoNCE + SelfDist - epsilon H(mean))
             + lambda_rep (SupCon + CE)

Every class owns a vertex of a simplex fixed in advance: base classes from stage 0 on, new classes
from the moment they are found.
"""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.losses.alignment import dot_alignment
from goal.losses.classification import negative_mean_entropy
from goal.methods.base import LabelledStage, Outputs, Stage, infer_all
from goal.methods.parts.parametric import BASE_KEYS, Parametric, ParametricSettings, Views
from goal.methods.simgcd import cooled
from goal.numerics.clustering import assign, assign_greedily, class_means
from goal.numerics.simplex import UNOWNED, VertexLedger

HAPPY_COOLING = (0.07, 0.04, 30)  # temperature of the teacher: first, last, epochs in between


class AlignedBaseSettings(ParametricSettings):
    """Settings of GOAL's stage 0; the names in brackets are the paper's.

    Attributes:
        supervised_alignment: Align labelled embeddings at stage 0 (Table 4, first column).
        base_alignment_weight: Weight of the supervised alignment.
        num_vertices: Vertices of the simplex [K]; by default all classes of the protocol.
        expand_vertices: Double the simplex when its vertices run out, turning the owned ones as
            little as possible (see `VertexLedger.extend`), instead of stopping.
        vertex_space: Where the simplex lives: on the projector's output or on the feature itself.
        classifier_space: Where classifier and k-means live.
        base_assignment: How base classes get their vertices.
        base_self_distillation: Add view-to-view self-distillation at stage 0.
        base_form: The paper's objective at stage 0, or Happy's with the alignment added: less of
            the cross-entropy, self-distillation from a teacher that cools as Happy's does, and
            full batches only.
        heads: Free, or bound to the vertices: base heads start there, and new heads are their
            vertices from the moment they claim them to the end of the stage. It takes one space
            for both.
        entropy_weight: Weight of the mean prediction's entropy, where it is a term [epsilon].
        matching: How new classes choose free vertices.
    """

    supervised_alignment: bool = True
    base_alignment_weight: float = Field(default=1.0, ge=0)
    num_vertices: int | None = Field(default=None, ge=2)
    expand_vertices: bool = False
    vertex_space: Literal["projector", "backbone"] = "projector"
    classifier_space: Literal["backbone", "projector"] = "backbone"
    base_assignment: Literal["identity", "hungarian"] = "identity"
    base_self_distillation: bool = False
    base_form: Literal["paper", "happy"] = "paper"
    heads: Literal["free", "vertices"] = "free"
    entropy_weight: float = Field(default=1.0, ge=0)
    matching: Literal["hungarian", "greedy"] = "hungarian"

    @model_validator(mode="after")
    def _spaces_fit(self) -> Self:
        if (self.vertex_space, self.classifier_space) == ("backbone", "projector"):
            raise ValueError(
                "with vertex_space=backbone the classifier is on the backbone too; "
                "leave classifier_space out"
            )
        if self.heads == "vertices" and self.vertex_space != self.classifier_space:
            raise ValueError(
                "heads=vertices needs classifier and vertices in one space: "
                "set vertex_space=backbone or classifier_space=projector"
            )
        if self.base_form == "happy" and self.base_self_distillation:
            raise ValueError(
                "base_form=happy has self-distillation already; leave base_self_distillation out"
            )
        return self


class AlignedBase(Parametric):
    """Stage 0 of GOAL, and the ledger of vertices for all stages."""

    base_family = "goal"
    base_keys = BASE_KEYS | {
        "supervised_alignment",
        "base_alignment_weight",
        "num_vertices",
        "vertex_space",
        "classifier_space",
        "base_assignment",
        "base_self_distillation",
        "base_form",
        "heads",
        "entropy_weight",
    }

    def __init__(
        self, settings: AlignedBaseSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> None:
        on_projector = settings.classifier_space == "projector"
        super().__init__(settings, tail, rng, settings.projector_out if on_projector else None)
        self.settings = settings
        self._epoch = 0
        self.only_full_batches = settings.base_form == "happy"
        seed = int(torch.randint(2**31, (), generator=rng))
        vertices = settings.num_vertices or max(capacity, 2)
        on_feature = settings.vertex_space == "backbone"
        self.ledger = VertexLedger(
            vertices, tail.width if on_feature else settings.projector_out, seed
        )

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Grow the classifier; base classes get their vertices."""
        self.make_room(stage.num_new)
        super().begin_stage(stage, rng)
        if isinstance(stage, LabelledStage):
            self._claim_base(stage)
            if self.settings.heads == "vertices":
                with torch.no_grad():
                    self.classifier.weight.copy_(self.directions())

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Note the epoch, which the teacher's temperature may depend on."""
        super().begin_epoch(stage, epoch, rng)
        self._epoch = epoch

    def target_temperature(self) -> float:
        """Happy's cooling teacher at stage 0, which no prototypes precede, if it is asked for."""
        if self.settings.base_form == "happy" and not len(self.prototypes):
            return cooled(*HAPPY_COOLING, self._epoch)
        return super().target_temperature()

    def make_room(self, count: int) -> None:
        """See to it that `count` vertices are free, or raise an error that says what to do."""
        size, dim = self.ledger.vertices.shape
        needed = size - len(self.ledger.free()) + count
        if self.settings.expand_vertices and size < needed <= dim:
            self.ledger.extend(min(max(2 * size, needed), dim))
        self.ledger.require_free(count)

    def _claim_base(self, stage: LabelledStage) -> None:
        """Give class k the k-th vertex, or each class the best match of its mean embedding."""
        classes = torch.arange(stage.num_new, device=self.ledger.owners.device)
        vertices = classes
        if self.settings.base_assignment == "hungarian":
            embeddings = infer_all(self, stage.tokens).embeddings
            assert embeddings is not None
            means = class_means(embeddings, stage.labels.to(embeddings.device), stage.num_new)
            vertices = assign(means @ self.ledger.vertices.T)
        self.ledger.claim(classes, vertices)

    def base_objective(self, views: Views, labels: Tensor) -> dict[str, Tensor]:
        """L_Base = L_Align^s + L_rep^Base + L_cls (eq. 9 of 4, 7, 8), over both views."""
        s, both = self.settings, labels.repeat(2)
        happy = s.base_form == "happy"
        share = s.sup_con_weight if happy else 1.0
        terms = self.base_contrast(views, labels)
        terms["classification"] = share * self.cross_entropy(views.scores, both)
        if s.supervised_alignment:
            aligned = dot_alignment(self.alignable(views), self.ledger.directions(both))
            terms["alignment"] = s.base_alignment_weight * aligned
        if happy or s.base_self_distillation:
            rest = 1 - share if happy else 1.0
            terms["self_distillation"] = rest * self.view_distillation(views)
            terms["entropy"] = rest * s.entropy_weight * self.mean_entropy(views)
        return terms

    def mean_entropy(self, views: Views) -> Tensor:
        """Negative entropy of the mean prediction over all classes (in eq. 11)."""
        return negative_mean_entropy(self.probabilities(views.scores))

    def claim_new(self, embeddings: Tensor, clusters: Tensor, stage: Stage) -> None:
        """Match clusters to free vertices, once per stage: least displacement, then for ever."""
        classes = torch.arange(stage.num_known, stage.num_seen, device=clusters.device)
        if bool((self.ledger.vertex_of(classes) != UNOWNED).all()):
            return
        free = self.ledger.free()
        similarity = class_means(embeddings, clusters, stage.num_new)
        similarity = similarity @ self.ledger.vertices[free].T
        match = assign if self.settings.matching == "hungarian" else assign_greedily
        self.ledger.claim(classes, free[match(similarity)])

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features, scores and, as embeddings, what vertices are compared with."""
        outputs = super().infer(tokens)
        if self.settings.vertex_space == "projector":
            return outputs
        return Outputs(outputs.features, outputs.scores, outputs.features)

    def alignable(self, views: Views) -> Tensor:
        """Unit vectors of both views in the space of the vertices."""
        on_feature = self.settings.vertex_space == "backbone"
        return views.features if on_feature else views.embeddings

    def space(self, outputs: Outputs) -> Tensor:
        """Features, or embeddings if the classifier lives on the projector."""
        if self.settings.classifier_space == "backbone":
            return outputs.features
        assert outputs.embeddings is not None
        return outputs.embeddings

    def weights(self) -> Tensor | None:
        """Classifier weights, where they live in feature space."""
        on_backbone = self.settings.classifier_space == "backbone"
        return super().weights() if on_backbone else None

    def directions(self) -> Tensor:
        """Vertices of all classes known so far."""
        classes = torch.arange(self.num_classes, device=self.ledger.owners.device)
        return self.ledger.directions(classes)
