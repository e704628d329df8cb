"""MetaGCD: learning to discover without forgetting (Wu et al., CVPR 2023).

    stage 0:  L_sup = (1 - lambda) InfoNCE + lambda SupCon, then meta-training on episodes:
              theta' = theta - a grad L_unsup, repeated;  theta = theta - b grad L_sup(theta')
    stage t:  L_unsup = (1 - lambda) InfoNCE + lambda SoftSupCon

An episode plays the continual run with the labelled classes: some count as known, the rest arrive
in pseudo-sessions. The inner loop learns a pseudo-session without labels, as later stages must;
the outer loop asks, with labels, how well all classes of the episode so far are told apart.

Deviation: points the source leaves open, or that we decide otherwise.
    - Episodes: half of the base classes, drawn at random, count as known; the rest is dealt out
      evenly. An inner batch is half images of the session's classes and half of classes before
      it; the outer batch is drawn from all of them. The paper's counts follow its own datasets.
    - Both loops are plain gradient steps, one outer step per session: momentum would be state
      between episodes, and none may outlive them. There are 10 episodes of 5 inner steps, about
      the cost of one epoch on CIFAR-100; the public code does 20 of 10 epochs each.
    - First-order: the gradient at theta' is applied to theta as it is.
    - Contrast before the episodes has the outer loop's lambda, 0.5: one weight for one loss.
    - With fewer than two base classes there is nothing to hide, and no episode.
    - Prediction by plain k-means, as in VanillaGCD.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn

from goal.common.errors import GoalError
from goal.common.seeding import stream
from goal.losses.contrastive import info_nce
from goal.losses.neighbours import soft_sup_con
from goal.methods.base import Batch, LabelledBatch, LabelledStage, Stage
from goal.methods.vanilla_gcd import VanillaGCD, VanillaGCDSettings


class MetaGCDSettings(VanillaGCDSettings):
    """Settings of MetaGCD; [lambda] is `sup_con_weight`, for labels and neighbours alike.

    Attributes:
        neighbour_threshold: Smallest cosine of a neighbour.
        episodes: Meta-training episodes at the end of stage 0.
        pseudo_sessions: Sessions in which an episode's novel classes arrive.
        episode_batch: Images per batch of an episode.
        inner_steps: Steps of the inner loop.
        inner_lr: Rate of the inner loop [a].
        outer_lr: Rate of the outer loop [b].
    """

    sup_con_weight: float = Field(default=0.5, ge=0, le=1)
    neighbour_threshold: float = Field(default=0.85, ge=-1, le=1)
    episodes: int = Field(default=10, ge=0)
    pseudo_sessions: int = Field(default=3, gt=0)
    episode_batch: int = Field(default=128, ge=2)
    inner_steps: int = Field(default=5, gt=0)
    inner_lr: float = Field(default=1e-4, gt=0)
    outer_lr: float = Field(default=1e-5, gt=0)


@dataclass(frozen=True)
class Session:
    """Positions of a pseudo-session's new images, and of those of classes before it."""

    new: Tensor
    known: Tensor


class MetaGCD(VanillaGCD):
    """VanillaGCD with neighbours as positives and weights that were trained to adapt."""

    Settings = MetaGCDSettings
    settings: MetaGCDSettings

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """L_sup for labelled batches, L_unsup for all others."""
        if isinstance(batch, LabelledBatch):
            return super().losses(batch, rng)
        s, (first, second) = self.settings, self.embed(batch)
        contrast = info_nce(first, second, s.contrast_temperature)
        soft = soft_sup_con(first, second, s.neighbour_threshold, s.sup_con_temperature)
        share = s.sup_con_weight
        return {"contrast": (1 - share) * contrast, "neighbours": share * soft}

    def fit_stage(self, stage: Stage, run_epochs: Callable[[], None]) -> None:
        """Train as usual; after the epochs of stage 0, meta-train.

        Episodes depend on the weights after the last epoch and on the stage's seed alone, so a
        run that is interrupted among them repeats them and ends the same.
        """
        run_epochs()
        if isinstance(stage, LabelledStage):
            rng = stream(int(self.seed), "episodes")
            for _ in range(self.settings.episodes):
                for session in play_episode(stage.labels, self.settings.pseudo_sessions, rng):
                    self._meta_step(stage, session, rng)

    def _meta_step(self, stage: LabelledStage, session: Session, rng: torch.Generator) -> None:
        """Adapt to the session, then move the weights as they were by the adapted gradient."""
        s = self.settings
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        before = [weight.detach().clone() for weight in weights]
        half = s.episode_batch // 2
        for _ in range(s.inner_steps):
            positions = torch.cat([draw(session.new, half, rng), draw(session.known, half, rng)])
            gradients = self._gradients(weights, self._batch(stage, positions, rng), rng)
            _move(weights, weights, gradients, s.inner_lr)
        positions = draw(torch.cat([session.new, session.known]), s.episode_batch, rng)
        views = self._batch(stage, positions, rng)
        labels = stage.labels[positions].to(views.positions.device)
        labelled = LabelledBatch(views.first, views.second, views.positions, labels)
        _move(weights, before, self._gradients(weights, labelled, rng), s.outer_lr)

    def _batch(self, stage: Stage, positions: Tensor, rng: torch.Generator) -> Batch:
        device = next(self.parameters()).device
        first, second = stage.tokens.pair(positions, rng)
        return Batch(first.to(device), second.to(device), positions.to(device))

    def _gradients(
        self, weights: list[nn.Parameter], batch: Batch, rng: torch.Generator
    ) -> tuple[Tensor, ...]:
        """Gradient of the batch's objective, without touching the optimiser's."""
        terms = self.losses(batch, rng)
        total = torch.stack(list(terms.values())).sum()
        if not bool(torch.isfinite(total)):
            listed = ", ".join(f"{name} = {float(term.detach()):g}" for name, term in terms.items())
            raise GoalError(
                f"The loss of a meta-training episode is not finite: {listed}. Lower "
                f"method.inner_lr or method.outer_lr, or set method.episodes=0 to go without."
            )
        return torch.autograd.grad(total, weights)


def play_episode(labels: Tensor, sessions: int, rng: torch.Generator) -> Iterator[Session]:
    """Call half of the classes known, at random, and let the rest arrive session by session."""
    present = labels.unique().cpu()
    shuffled = present[torch.randperm(len(present), generator=rng)]
    known = (len(present) + 1) // 2
    for arriving in shuffled[known:].tensor_split(sessions):
        if len(arriving):
            yield Session(_members(labels, arriving), _members(labels, shuffled[:known]))
            known += len(arriving)


def _members(labels: Tensor, classes: Tensor) -> Tensor:
    """Positions of the images of some classes."""
    return torch.isin(labels.cpu(), classes).nonzero().flatten()


def draw(positions: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Draw at most `count` of the positions, none twice."""
    return positions[torch.randperm(len(positions), generator=rng)[:count]]


@torch.no_grad()
def _move(
    weights: list[nn.Parameter],
    origin: list[Tensor] | list[nn.Parameter],
    gradients: tuple[Tensor, ...],
    rate: float,
) -> None:
    """Set the weights to one gradient step away from the origin."""
    for weight, start, gradient in zip(weights, origin, gradients, strict=True):
        weight.copy_(start - rate * gradient)
