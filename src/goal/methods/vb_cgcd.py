"""VB-CGCD: one Gaussian per class, and no gradient after stage 0 (Dai and Chauhan, ICML 2025).

    stage 0:  L = (1 - lambda) InfoNCE + lambda SupCon + CE;  PCA;  N(mu_c, Sigma_c) per class
    stage t:  a mixture of K_new Gaussians on all samples, before PCA, gives each its cluster;
              then, again and again: relabel all samples by the known and the new Gaussians
              together, and refit the new ones to those predicted new, each to its cluster's;
              stop when their covariances have become as small as the known ones
    predict:  argmax_c log N(x; mu_c, Sigma_c)

New Gaussians start too wide, for the mixture spreads them over images of known classes, too. Each
relabelling gives such images back; shrinking beyond the size of known classes would take images
of new classes away from them.

Deviation: points the source leaves open, or where this code is simpler.
    - The paper fits its Gaussians by stochastic variational inference from unit covariances and
      stops that early. With a flat prior the optimum is the sample mean and covariance: these are
      taken in closed form, and what can be stopped early is the relabelling. At least one round of
      it takes place, as published, and at most `rounds`.
    - "Size" is the mean log-determinant. It is finite where the determinant underflows.
    - Sigma = (1 - s) S + s C, with S the class's sample covariance and C the covariance within base
      classes, pooled over them and mixed with a tenth of a sphere: invertible, however few the
      samples. The paper's early stop keeps covariances near their common start; so does s = 0.9,
      chosen on CIFAR-100's base classes (40 of them known, 10 held out as new; ResNet-50 features
      in 384 dimensions). With little shrinkage, a Gaussian fits the samples it was fitted to far
      better than others of its class, and new ones keep the known images they start with.
    - PCA is fitted on unit features, to at most as many dimensions as there are or as samples
      allow. Neither PCA nor known Gaussians change after stage 0.
    - A new Gaussian that nobody is predicted to be stays as it was. If there are fewer samples than
      new classes, each of the rest is wide: the mean of all samples, their covariance.
    - Stage 0 trains the last block like every method here; `train_base = False` leaves the
      pretrained features as they are.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field
from sklearn.mixture import GaussianMixture
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.methods.base import (
    Batch,
    LabelledBatch,
    LabelledStage,
    MethodSettings,
    Outputs,
    Stage,
    infer_all,
)
from goal.methods.parts.parametric import BASE_KEYS, Parametric, ParametricSettings
from goal.numerics.clustering import class_means, draw_seed

SPHERE = 0.1  # share of a sphere in the covariance within base classes, and floor of the mixture


class VBCGCDSettings(ParametricSettings):
    """Settings of VB-CGCD.

    Attributes:
        train_base: Train the last block at stage 0, or else use pretrained features.
        dimensions: Dimensions that PCA keeps.
        shrinkage: Share of the covariance within base classes in every covariance [s above].
        rounds: Relabellings per stage, at most.
        restarts: Starts of the mixture, the best of which is kept.
    """

    train_base: bool = True
    dimensions: int = Field(default=384, gt=0)
    shrinkage: float = Field(default=0.9, gt=0, le=1)
    rounds: int = Field(default=10, gt=0)
    restarts: int = Field(default=5, gt=0)


@dataclass(frozen=True)
class Gaussians:
    """K Gaussians in d dimensions. `whiteners` are inverse Cholesky factors of the covariances."""

    means_Kd: Tensor
    whiteners_Kdd: Tensor

    @classmethod
    def fit(
        cls, points_Nd: Tensor, classes_N: Tensor, count: int, shrinkage: float, usual_dd: Tensor
    ) -> Self:
        """Mean and covariance of each class, the latter shrunk towards the usual one."""
        means = class_means(points_Nd, classes_N, count)
        whiteners = []
        for label in range(count):
            away = points_Nd[classes_N == label] - means[label]
            sample = away.T @ away / max(len(away), 1)
            factor = torch.linalg.cholesky((1 - shrinkage) * sample + shrinkage * usual_dd)
            identity = torch.eye(len(factor)).to(factor)
            whiteners.append(torch.linalg.solve_triangular(factor, identity, upper=False))
        return cls(means, torch.stack(whiteners))

    def log_densities(self, points_Nd: Tensor) -> Tensor:
        """``log N(x_n; mu_k, Sigma_k)``, (N, K)."""
        pairs = zip(self.means_Kd, self.whiteners_Kdd, strict=True)
        squared = [((points_Nd - mean) @ white.T).square().sum(dim=1) for mean, white in pairs]
        constant = points_Nd.shape[1] * math.log(2 * math.pi)
        return -(torch.stack(squared, dim=1) + self.log_determinants() + constant) / 2

    def log_determinants(self) -> Tensor:
        """Log-determinant of each covariance, (K,)."""
        return -2 * self.whiteners_Kdd.diagonal(dim1=1, dim2=2).log().sum(dim=1)

    def join(self, other: "Gaussians") -> "Gaussians":
        """Put other Gaussians behind these."""
        return Gaussians(
            torch.cat([self.means_Kd, other.means_Kd]),
            torch.cat([self.whiteners_Kdd, other.whiteners_Kdd]),
        )

    def repeated(self, count: int) -> "Gaussians":
        """A single Gaussian, several times."""
        return Gaussians(self.means_Kd.repeat(count, 1), self.whiteners_Kdd.repeat(count, 1, 1))

    def where(self, chosen_K: Tensor, other: "Gaussians") -> "Gaussians":
        """These Gaussians where chosen, else the other ones."""
        return Gaussians(
            torch.where(chosen_K[:, None], self.means_Kd, other.means_Kd),
            torch.where(chosen_K[:, None, None], self.whiteners_Kdd, other.whiteners_Kdd),
        )


class VBCGCD(Parametric):
    """Gaussians in the principal components of the stage-0 features, all in double precision."""

    Settings = VBCGCDSettings
    base_family = "supervised"
    base_keys = BASE_KEYS - {"teacher_temperature"}
    centre: Tensor  # of PCA, (D,)
    axes: Tensor  # of PCA, (D, d)
    within: Tensor  # covariance within base classes, (d, d)
    means: Tensor  # (K, d)
    whiteners: Tensor  # (K, d, d)

    def __init__(self, settings: VBCGCDSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.settings = settings
        if not settings.train_base:
            self.requires_grad_(False)
        sizes = {"centre": 1, "axes": 2, "within": 2, "means": 2, "whiteners": 3}
        for name, dimensions in sizes.items():
            self.register_buffer(name, torch.zeros((0,) * dimensions, dtype=torch.float64))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> Self:
        """Construct; capacity does not matter, since Gaussians are added one by one."""
        assert isinstance(settings, VBCGCDSettings)
        return cls(settings, tail, rng)

    @property
    def num_classes(self) -> int:
        """Classes with a Gaussian; while stage 0 trains, with a classifier weight."""
        return len(self.means) or super().num_classes

    # -- stages -----------------------------------------------------------------------------------

    def trains(self, index: int) -> bool:
        """At stage 0 only, if at all."""
        return index == 0 and self.settings.train_base

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Start the classifier that helps to train stage 0."""
        if self.trains(stage.index):
            super().begin_stage(stage, rng)

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """Contrast and cross-entropy of a labelled batch."""
        assert isinstance(batch, LabelledBatch)
        return self.supervised_objective(self.see(batch), batch.labels)

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Fit PCA and the Gaussians of base classes, or discover those of new ones."""
        features = infer_all(self, stage.tokens).features.double()
        if isinstance(stage, LabelledStage):
            labels = stage.labels.to(features.device)
            self._fit_axes(features)
            points = self._reduce(features)
            self._fit_within(points - class_means(points, labels, stage.num_new)[labels])
            self._keep(self._fit(points, labels, stage.num_new))
        else:
            new = self._discover(features, stage.num_new, rng)
            self._keep(self._known().join(new))

    def infer(self, tokens: Tokens) -> Outputs:
        """Score by log-densities; while stage 0 trains, by the classifier."""
        outputs = super().infer(tokens)
        if not len(self.means):
            return outputs
        scores = self._known().log_densities(self._reduce(outputs.features.double()))
        return Outputs(outputs.features, scores.to(outputs.features), outputs.embeddings)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Posterior of log-densities, all classes alike before; at first as for cosines."""
        return scores.softmax(dim=1) if len(self.means) else super().probabilities(scores)

    def weights(self) -> None:
        """None: Gaussians have no weight vectors."""

    # -- the principal components -----------------------------------------------------------------

    def _fit_axes(self, features_ND: Tensor) -> None:
        """Keep the directions of largest variance."""
        count, width = features_ND.shape
        dimensions = max(1, min(self.settings.dimensions, count - 1, width))
        self.centre = features_ND.mean(dim=0)
        away = features_ND - self.centre
        self.axes = torch.linalg.eigh(away.T @ away).eigenvectors[:, -dimensions:].flip(1)

    def _reduce(self, features_ND: Tensor) -> Tensor:
        return (features_ND - self.centre) @ self.axes

    # -- the Gaussians ----------------------------------------------------------------------------

    def _fit_within(self, away_Nd: Tensor) -> None:
        """Pool the covariance within classes; the sphere in it makes it invertible."""
        pooled = away_Nd.T @ away_Nd / len(away_Nd)
        sphere = pooled.diagonal().mean().clamp_min(1e-8) * torch.eye(len(pooled)).to(pooled)
        self.within = (1 - SPHERE) * pooled + SPHERE * sphere

    def _known(self) -> Gaussians:
        return Gaussians(self.means, self.whiteners)

    def _keep(self, gaussians: Gaussians) -> None:
        self.means, self.whiteners = gaussians.means_Kd, gaussians.whiteners_Kdd

    def _fit(self, points: Tensor, classes: Tensor, count: int) -> Gaussians:
        return Gaussians.fit(points, classes, count, self.settings.shrinkage, self.within)

    def _discover(self, features: Tensor, count: int, rng: torch.Generator) -> Gaussians:
        """Relabel and refit until new Gaussians are as small as known ones."""
        known, points = self._known(), self._reduce(features)
        size = known.log_determinants().mean()
        clusters = self._clusters(features, count, rng)
        everything = self._fit(points, torch.zeros_like(clusters), 1).repeated(count)
        new = self._refit(points, clusters, everything)
        for _ in range(self.settings.rounds):
            labels = known.join(new).log_densities(points).argmax(dim=1)
            kept = labels >= len(known.means_Kd)
            new = self._refit(points, clusters.where(kept, -1), new)
            if new.log_determinants().mean() <= size:
                break
        return new

    def _clusters(self, features: Tensor, count: int, rng: torch.Generator) -> Tensor:
        """Cluster of each sample in a mixture on the features before PCA, (N,)."""
        if len(features) < 2:
            return torch.zeros(len(features), dtype=torch.int64, device=features.device)
        model = GaussianMixture(
            min(count, len(features)),
            reg_covar=SPHERE * max(float(features.var(dim=0).mean()), 1e-8),
            n_init=self.settings.restarts,
            random_state=draw_seed(rng),
        )
        labels = model.fit_predict(features.cpu().numpy())
        return torch.from_numpy(labels).to(features.device)

    def _refit(self, points: Tensor, labels: Tensor, before: Gaussians) -> Gaussians:
        """Fit to the samples labelled 0, 1, ...; a Gaussian without any stays as it was."""
        mine, count = labels >= 0, len(before.means_Kd)
        found = torch.bincount(labels[mine], minlength=count) > 0
        return self._fit(points[mine], labels[mine], count).where(found, before)
