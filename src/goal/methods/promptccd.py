"""PromptCCD: a Gaussian mixture as prompt pool (Cendra et al., ECCV 2024).

    stage 0:  L = (1 - lambda) InfoNCE + lambda SupCon      both on prompted features
    stage t:  L = InfoNCE
    pool:     mixture of the features, refitted every 30 epochs; prompts = the 5 likeliest means

Each image's own feature asks the pool which components it may belong to; their means join the
image's tokens, and the feature that the losses see is computed once more with them. Evaluation
is without prompts, as in the public code: the pool teaches the block and is not asked any more.
Samples of the previous stage's pool take part in every fit, so the pool does not forget.

Deviation: points the source leaves open, or where this package differs.
    - The published method prompts the input of the whole ViT. The trunk is frozen and banked here:
      prompts enter as extra tokens of the trained block, layer-normalised like all its tokens.
    - Prediction is k-means on the plain features of the given images, as for VanillaGCD. The
      paper's semi-supervised k-means needs labelled images, which a continual run no longer has.
    - The pool is fitted on unit features without prompts, and used from its first fit on. The
      published runs leave out prompts until the second one; a stage here may be too short for it.
    - Spherical components, as many as classes seen so far, and 100 samples in all of the previous
      pool: the published settings.
    - The pool is also fitted when a stage ends, so that the next stage remembers its last features.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens, TokenSource
from goal.distributed import Split
from goal.methods.base import Batch, Stage
from goal.methods.vanilla_gcd import VanillaGCD, VanillaGCDSettings
from goal.numerics.clustering import draw_seed


class PromptCCDSettings(VanillaGCDSettings):
    """Settings of PromptCCD.

    Attributes:
        prompts: Prompt tokens per image.
        refit_every: Epochs between fits of the pool.
        replayed: Samples of the previous stage's pool in every fit.
        variance_floor: Added to the variance of every component.
    """

    prompts: int = Field(default=5, gt=0)
    refit_every: int = Field(default=30, gt=0)
    replayed: int = Field(default=100, ge=0)
    variance_floor: float = Field(default=1e-3, gt=0)


class PromptPool(nn.Module):
    """A mixture of spherical Gaussians whose means are prompts. Shapes: B queries, K components."""

    means: Tensor
    variances: Tensor
    weights: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.empty(0, width))
        self.register_buffer("variances", torch.empty(0))
        self.register_buffer("weights", torch.empty(0))

    def __len__(self) -> int:
        return len(self.means)

    def fit(self, features: Tensor, components: int, floor: float, rng: torch.Generator) -> None:
        """Fit the mixture anew; never more components than features."""
        points = features.detach().cpu().double().numpy()
        if len(points) < 2:
            return  # nothing to tell apart; an earlier fit, if any, stays
        model = GaussianMixture(
            min(components, len(points)),
            covariance_type="spherical",
            reg_covar=floor,
            random_state=draw_seed(rng),
        )
        with threadpool_limits(limits=1):
            model.fit(points)
        self.means = torch.from_numpy(model.means_).to(self.means)
        self.variances = torch.from_numpy(model.covariances_).to(self.variances)
        self.weights = torch.from_numpy(model.weights_).to(self.weights)

    def log_joint(self, queries_BD: Tensor) -> Tensor:
        """Log of each component's weight times its density, (B, K), up to a constant."""
        exact = "donot_use_mm_for_euclid_dist"  # by differences, though without holding them all
        squared = torch.cdist(queries_BD, self.means, compute_mode=exact).square()
        width = self.means.shape[1]
        log_scale = self.weights.clamp_min(1e-12).log() - width / 2 * self.variances.log()
        return log_scale - squared / (2 * self.variances)

    def choose(self, queries_BD: Tensor, count: int) -> Tensor:
        """Means of the components each query most likely belongs to, (B, count, D)."""
        best = self.log_joint(queries_BD).topk(min(count, len(self)), dim=1).indices
        return self.means[best]

    def sample(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw features, (count, D)."""
        chosen = torch.multinomial(self.weights.cpu(), count, replacement=True, generator=rng)
        noise = torch.randn(count, self.means.shape[1], generator=rng).to(self.means)
        chosen = chosen.to(self.means.device)
        return self.means[chosen] + self.variances[chosen].sqrt()[:, None] * noise


class PromptCCD(VanillaGCD):
    """VanillaGCD on prompted tokens, and the pool that the prompts come from."""

    Settings = PromptCCDSettings
    base_family = "promptccd"
    base_keys = frozenset(PromptCCDSettings.model_fields.keys() - {"name", "restarts", "replayed"})
    settings: PromptCCDSettings
    past: Tensor  # samples of the previous stage's pool, (S, D)

    def __init__(self, settings: PromptCCDSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.pool = PromptPool(tail.width)
        self.register_buffer("past", torch.empty(0, tail.width))

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Count the stage's classes, and draw what the next pools shall remember of this one."""
        super().begin_stage(stage, rng)
        if len(self.pool) and self.settings.replayed:
            self.past = self.pool.sample(self.settings.replayed, rng)

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Refit the pool every few epochs, from the first one on."""
        super().begin_epoch(stage, epoch, rng)
        if epoch % self.settings.refit_every == 0:
            self._refit(stage, rng)

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Fit the pool to the stage's last features."""
        self._refit(stage, rng)
        super().end_stage(stage, rng)

    def _refit(self, stage: Stage, rng: torch.Generator) -> None:
        """Fit the pool to the stage's features and the samples of the past."""
        features = torch.cat([self._queries_of(stage.tokens), self.past])
        self.pool.fit(features, stage.num_seen, self.settings.variance_floor, rng)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embeddings of the prompted first views and of the second ones."""
        embeddings = self.infer(self._prompted(Tokens.cat([batch.first, batch.second]))).embeddings
        assert embeddings is not None
        first, second = embeddings.chunk(2)
        return first, second

    def _prompted(self, tokens: Tokens) -> Tokens:
        """Append the prompts that each image's plain feature asks for, once there is a pool."""
        if not len(self.pool):
            return tokens
        prompts_BpD = self.pool.choose(self._query(tokens), self.settings.prompts)
        prompts_BpD = F.layer_norm(prompts_BpD, prompts_BpD.shape[-1:])
        return Tokens(torch.cat([tokens.normalised, prompts_BpD], dim=1), tokens.cls)

    @torch.no_grad()
    def _query(self, tokens: Tokens) -> Tensor:
        """Unit features without prompts, (B, D), of these tokens alone (`goal.distributed`)."""
        return F.normalize(self.tail.forward(tokens), dim=1)

    def _queries_of(self, tokens: TokenSource, batch_size: int = 512) -> Tensor:
        """Queries of the clean views of all images, (N, D)."""
        device = self.past.device
        split = Split(len(tokens))
        parts = split.mine.split(batch_size)
        return split.gather(
            torch.cat([self._query(tokens.clean(part).to(device)) for part in parts])
        )
