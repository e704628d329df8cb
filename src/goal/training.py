"""The loop of one stage: optimiser, schedule, named terms, and a state that can be resumed."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from goal.backbone import ClsTail
from goal.config import TrainingSettings
from goal.errors import GoalError
from goal.methods.base import Batch, LabelledBatch, LabelledStage, Method, Projector, Stage
from goal.progress import Reporter
from goal.sharing import Split, agree, average, spread

EpochRecord = dict[str, Any]

_MANY_BATCHES = 20  # an epoch of fewer is over before its bar can be read


class StageTrainer:
    """Trains a method on one stage; holds what must survive an interruption."""

    def __init__(
        self, method: Method, stage: Stage, settings: TrainingSettings, rng: torch.Generator
    ) -> None:
        self.method = method
        self.stage = stage
        self.settings = settings
        self.rng = rng
        self.epoch = 0
        self._reporter = Reporter()
        self._peak_lr = settings.base_lr if stage.index == 0 else settings.stage_lr
        self._optimiser = make_optimiser(method, settings, self._peak_lr)

    def run(self, after_epoch: Callable[[EpochRecord], None], reporter: Reporter) -> None:
        """Train until the last epoch, calling `after_epoch` with the mean terms of each."""
        task = f"Stage {self.stage.index}: epochs"
        self._reporter = reporter
        todo = range(self.epoch, self.stage.epochs)
        for epoch in reporter.track(todo, len(todo), task):
            self.method.begin_epoch(self.stage, epoch, self.rng)
            agree(self.method.state_dict().values())
            terms = self._train_epoch(epoch)
            self.epoch = epoch + 1
            parts = ", ".join(f"{name} {value:.2f}" for name, value in terms.items())
            reporter.note(task, f"loss {sum(terms.values()):.3f} = {parts}")
            after_epoch({"stage": self.stage.index, "epoch": self.epoch, **terms})

    def state_dict(self) -> dict[str, Any]:
        """Everything beside the method's own state that the next epoch depends on."""
        return {
            "epoch": self.epoch,
            "optimiser": self._optimiser.state_dict(),
            "rng": self.rng.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.epoch = state["epoch"]
        self._optimiser.load_state_dict(state["optimiser"])
        self.rng.set_state(state["rng"])

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        for group in self._optimiser.param_groups:
            group["lr"] = cosine(self._peak_lr, epoch, self.stage.epochs)
        sums: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        self.method.train()
        count = math.ceil(len(self.stage.tokens) / self.settings.batch_size)
        batches = self._batches()
        if count >= _MANY_BATCHES:
            batches = self._reporter.track(batches, count, f"Epoch {epoch + 1}: batches")
        for step, batch in enumerate(batches):
            with spread(self.method, len(batch), ClsTail, Projector):
                terms = self.method.losses(batch, self.rng)
            total = torch.stack(list(terms.values())).sum()
            if not bool(torch.isfinite(total)):
                raise GoalError(self._not_finite(terms, epoch, step))
            self._optimiser.zero_grad()
            total.backward()
            average(parameter.grad for parameter in self.method.parameters())
            self._optimiser.step()
            for name, term in terms.items():
                sums[name] = sums.get(name, torch.zeros(())) + term.detach().cpu()
                counts[name] = counts.get(name, 0) + 1
        self.method.eval()
        return {name: float(sums[name]) / counts[name] for name in sums}

    def _batches(self) -> Iterator[Batch]:
        device = next(self.method.parameters()).device
        stage = self.stage
        order = torch.randperm(len(stage.tokens), generator=self.rng)
        for positions in order.split(self.settings.batch_size):
            if len(positions) == 1 and len(order) > 1:
                continue  # contrast needs company
            mine = Split(len(positions)).mine
            first, second = stage.tokens.pair(positions, self.rng, mine)
            views = (first.to(device), second.to(device), positions.to(device))
            if isinstance(stage, LabelledStage):
                yield LabelledBatch(*views, labels=stage.labels[positions].to(device))
            else:
                yield Batch(*views)

    def _not_finite(self, terms: dict[str, Tensor], epoch: int, step: int) -> str:
        listed = ", ".join(f"{name} = {float(term.detach()):g}" for name, term in terms.items())
        return (
            f"The loss is not finite at stage {self.stage.index}, epoch {epoch + 1}, step "
            f"{step + 1}: {listed}. The last good checkpoint is kept. Lower training.base_lr or "
            f"training.stage_lr, or look at the term that broke."
        )


def make_optimiser(method: Method, settings: TrainingSettings, lr: float) -> torch.optim.Optimizer:
    """SGD over what trains; no weight decay on biases and other one-dimensional parameters."""
    trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=settings.momentum, fused=True)


def cosine(peak: float, epoch: int, epochs: int) -> float:
    """Learning rate of an epoch: from `peak` along a half cosine towards a thousandth of it."""
    low = peak / 1000
    return low + (peak - low) * (1 + math.cos(math.pi * epoch / epochs)) / 2
