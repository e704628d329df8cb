"""The common ground of methods with a classifier: projector, growing heads, and retention.

Features come from the tail, embeddings from a projector on top; the classifier scores unit
features by cosines. Each stage keeps the previous tail as a teacher and, at its end, one
prototype per new class; prototypes of known classes never move.
"""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import RepeatingSource, Tokens
from goal.distributed import Split
from goal.losses.classification import self_distillation
from goal.losses.contrastive import info_nce, sup_con
from goal.losses.distillation import feature_distillation
from goal.losses.replay import sample_prototypes
from goal.methods.base import (
    Batch,
    CosineClassifier,
    LabelledStage,
    Method,
    MethodSettings,
    Outputs,
    Projector,
    Stage,
    infer_all,
)
from goal.methods.parts.heads import farthest_centroids, novelty_centroids, random_directions
from goal.numerics.clustering import class_means

_TAUGHT_BYTES = 2**31  # most that the teacher's features of a stage may take
_TAUGHT_BATCH = 256

HEAD_INITS = {
    "farthest": farthest_centroids,
    "novelty": novelty_centroids,
    "random": random_directions,
}


class ParametricSettings(MethodSettings):
    """Settings that all methods with a classifier share.

    Attributes:
        projector_hidden: Hidden width of the projector.
        projector_out: Width of the embedding.
        head_init: Head initialisation of new classes, see `goal.methods.parts.heads`.
        head_length: Length at which heads start. Scores do not depend on it, but a gradient turns a
            short head faster: by the inverse square of its length.
        sup_con_weight: Share of the supervised contrast at stage 0; the rest is InfoNCE.
        student_temperature: Temperature of predictions.
        teacher_temperature: Temperature of the targets that one view sets for the other.
        contrast_temperature: Temperature of InfoNCE.
        sup_con_temperature: Temperature of the supervised contrast.
    """

    projector_hidden: int = Field(default=2048, gt=0)
    projector_out: int = Field(default=768, gt=1)
    head_init: Literal["farthest", "novelty", "random"] = "farthest"
    head_length: float = Field(default=1.0, gt=0)
    sup_con_weight: float = Field(default=0.35, ge=0, le=1)
    student_temperature: float = Field(default=0.1, gt=0)
    teacher_temperature: float = Field(default=0.05, gt=0)
    contrast_temperature: float = Field(default=1.0, gt=0)
    sup_con_temperature: float = Field(default=0.07, gt=0)


class RetentionSettings(ParametricSettings):
    """Settings of methods that also replay prototypes and distil features (see `retention`).

    Attributes:
        replay_weight: Weight of prototype replay.
        distillation_weight: Weight of feature distillation from the previous stage.
    """

    replay_weight: float = Field(default=1.0, ge=0)
    distillation_weight: float = Field(default=1.0, ge=0)


# The settings of a method with a classifier that stage 0 depends on.
BASE_KEYS = frozenset(
    {"projector_hidden", "projector_out", "sup_con_weight", "contrast_temperature"}
    | {"student_temperature", "teacher_temperature", "sup_con_temperature", "head_length"}
)


@dataclass(frozen=True)
class Views:
    """Both views of a batch, the first half above the second: unit features and embeddings."""

    features: Tensor
    embeddings: Tensor
    scores: Tensor


class Parametric(Method):
    """Base of methods with a classifier."""

    prototypes: Tensor
    radius: Tensor

    def __init__(
        self,
        settings: ParametricSettings,
        tail: Tail,
        rng: torch.Generator,
        classifier_width: int | None = None,
    ) -> None:
        super().__init__(tail)
        self.common = settings
        width = classifier_width or tail.width
        self.projector = Projector(
            tail.width, settings.projector_hidden, settings.projector_out, rng
        )
        self.classifier = CosineClassifier(width)
        self.teacher = copy.deepcopy(tail).requires_grad_(False)
        self._taught: Tensor | None = None  # the teacher's features by view and image, if kept
        self.register_buffer("prototypes", torch.empty(0, width))
        self.register_buffer("radius", torch.zeros(()))

    @property
    def num_classes(self) -> int:
        """Classes with a classifier weight."""
        return len(self.classifier.weight)

    def space(self, outputs: Outputs) -> Tensor:
        """Unit vectors in the space where classifier, k-means and prototypes live."""
        return outputs.features

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features, embeddings and scores."""
        return self._outputs(tokens)

    def _outputs(self, *parts: Tokens) -> Outputs:
        features = self.tail(*parts)
        embeddings = F.normalize(self.projector(features), dim=1)
        outputs = Outputs(F.normalize(features, dim=1), None, embeddings)
        return Outputs(outputs.features, self.classifier(self.space(outputs)), embeddings)

    def see(self, batch: Batch) -> Views:
        """Run both views of a batch through tail, projector and classifier."""
        outputs = self._outputs(batch.first, batch.second)
        assert outputs.embeddings is not None and outputs.scores is not None
        return Views(outputs.features, outputs.embeddings, outputs.scores)

    # -- stages -----------------------------------------------------------------------------------

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Keep the previous tail as teacher and append weights for the stage's classes."""
        self.renew_teacher(stage)
        self._taught = None
        if stage.index == 0:
            random = torch.randn(stage.num_new, self.classifier.weight.shape[1], generator=rng)
            self.classifier.grow(self.common.head_length * F.normalize(random, dim=1))
        else:
            space = self.space(infer_all(self, stage.tokens))
            known = F.normalize(self.classifier.weight.detach(), dim=1)
            start = HEAD_INITS[self.common.head_init]
            rows = start(space, known, stage.num_new, rng)
            self.classifier.grow(self.common.head_length * rows)

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Run the teacher once over the views it will be asked about, if they repeat."""
        if stage.index > 0 and self._taught is None and self.asks_teacher():
            self._taught = self._teach(stage)

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure the prototypes of the stage's classes, and at stage 0 the radius of a class."""
        self.remember(stage, infer_all(self, stage.tokens))

    def remember(self, stage: Stage, outputs: Outputs) -> None:
        """Append the mean feature of each new class: by label at stage 0, then by prediction.

        A new class that nobody is predicted to be keeps its classifier weight instead.
        """
        space = self.space(outputs)
        if isinstance(stage, LabelledStage):
            labels = stage.labels.to(space.device)
            means = class_means(space, labels, stage.num_new)
            scatter = (space - means[labels]).square().sum(dim=1, keepdim=True)
            per_class = class_means(scatter, labels, stage.num_new)
            self.radius = (per_class.mean() / space.shape[1]).sqrt()
        else:
            assert outputs.scores is not None
            predicted = outputs.scores.argmax(dim=1) - stage.num_known
            mine = predicted >= 0
            means = class_means(space[mine], predicted[mine], stage.num_new)
            empty = means.norm(dim=1) == 0
            weights = F.normalize(self.classifier.weight.detach()[stage.num_known :], dim=1)
            means[empty] = weights[empty]
        self.prototypes = torch.cat([self.prototypes, means])

    # -- terms ------------------------------------------------------------------------------------

    def contrast(self, views: Views) -> Tensor:
        """InfoNCE between the two views."""
        first, second = views.embeddings.chunk(2)
        return info_nce(first, second, self.common.contrast_temperature)

    def base_contrast(self, views: Views, labels: Tensor) -> dict[str, Tensor]:
        """``(1 - lambda) InfoNCE + lambda SupCon`` (GCD's representation loss)."""
        share = self.common.sup_con_weight
        first, second = views.embeddings.chunk(2)
        supervised = sup_con(first, second, labels, self.common.sup_con_temperature)
        return {"contrast": (1 - share) * self.contrast(views), "sup_contrast": share * supervised}

    def supervised_objective(self, views: Views, labels: Tensor) -> dict[str, Tensor]:
        """Both contrasts, and cross-entropy over both views."""
        terms = self.base_contrast(views, labels)
        terms["classification"] = self.cross_entropy(views.scores, labels.repeat(2))
        return terms

    def cross_entropy(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of cosines at the student's temperature."""
        return F.cross_entropy(scores / self.common.student_temperature, labels)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Softmax of cosines at the student's temperature."""
        return (scores / self.common.student_temperature).softmax(dim=1)

    def target_temperature(self) -> float:
        """Temperature of the targets that one view sets for the other."""
        return self.common.teacher_temperature

    def view_distillation(self, views: Views) -> Tensor:
        """Each view's prediction towards the other's sharper one."""
        first, second = views.scores.chunk(2)
        return self_distillation(
            first, second, self.common.student_temperature, self.target_temperature()
        )

    def retention(
        self, settings: RetentionSettings, batch: Batch, views: Views, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """Replay of known prototypes and distillation of features, where their weights are set."""
        terms = {}
        if settings.replay_weight > 0:
            replayed, classes = sample_prototypes(
                self.prototypes, self.radius, 2 * len(batch), self.common.student_temperature, rng
            )
            loss = self.cross_entropy(self.classifier(replayed), classes)
            terms["replay"] = settings.replay_weight * loss
        if settings.distillation_weight > 0:
            loss = feature_distillation(views.features, self.previous_features(batch))
            terms["distillation"] = settings.distillation_weight * loss
        return terms

    # -- the previous model -----------------------------------------------------------------------

    def renew_teacher(self, stage: Stage) -> None:
        """Make the tail, as the stage finds it, the teacher."""
        self.teacher.load_state_dict(self.tail.state_dict())

    def asks_teacher(self) -> bool:
        """Whether the objective of an unlabelled stage has features of the previous tail in it."""
        common = self.common
        return isinstance(common, RetentionSettings) and common.distillation_weight > 0

    @torch.no_grad()
    def previous_features(self, batch: Batch) -> Tensor:
        """Unit features of both views under the previous tail, the first half above the second."""
        first, second = batch.first.views, batch.second.views
        if self._taught is None or first is None or second is None:
            return F.normalize(self.teacher(batch.first, batch.second), dim=1)
        split = Split(len(batch))
        mine = batch.positions[split.mine.to(batch.positions.device)]
        return split.gather(self._taught[torch.cat([first, second]), mine.repeat(2)])

    @torch.no_grad()
    def _teach(self, stage: Stage) -> Tensor | None:
        """Unit features of the teacher, (views, N, D), if keeping them is possible and pays.

        The teacher is frozen for the stage, and so are banked views: a pass over each of them
        serves all epochs. All are computed at once, in a fixed order, so that a resumed stage
        has the same bits.
        """
        tokens, device = stage.tokens, self.radius.device
        if not isinstance(tokens, RepeatingSource):
            return None
        numbers, width = tokens.drawn_views(), self.tail.width
        size = numbers.stop * len(tokens) * width * self.radius.element_size()
        if len(numbers) > 2 * stage.epochs or size > _TAUGHT_BYTES:
            return None
        taught = torch.empty(numbers.stop, len(tokens), width, device=device)
        split = Split(len(tokens))
        for number in numbers:
            parts = split.mine.split(_TAUGHT_BATCH)
            own = [self.teacher(tokens.view(number, part).to(device)) for part in parts]
            taught[number] = split.gather(F.normalize(torch.cat(own), dim=1))
        return taught

    # -- diagnostics ------------------------------------------------------------------------------

    def weights(self) -> Tensor | None:
        """Classifier weights, which live in feature space unless a method says otherwise."""
        return self.classifier.weight.detach()
