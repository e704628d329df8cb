"""The loop of one stage: optimiser, schedule, named terms, and a state that can be resumed."""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.common.errors import GoalError
from goal.common.process import keep_memory
from goal.common.progress import Reporter
from goal.distributed import Split, agree, average, split_work
from goal.methods.base import Batch, LabelledBatch, LabelledStage, Method, Projector, Stage
from goal.settings.training import TrainingSettings

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
        keep_memory()
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
        parts = self._parts()
        ahead: Iterable[Tensor | None] = [*parts[1:], None]
        if len(parts) >= _MANY_BATCHES:
            ahead = self._reporter.track(ahead, len(parts), f"Epoch {epoch + 1}: batches")
        with self._reading() as read:
            upcoming = read(parts[0])
            for step, following in enumerate(ahead):
                terms = self._terms(upcoming())
                self._require_finite(terms, epoch, step)
                # All that this step draws is drawn, so reading ahead draws what it always would.
                upcoming = upcoming if following is None else read(following)
                self._step(terms)
                for name, term in terms.items():
                    sums[name] = sums.get(name, torch.zeros(())) + term.detach().cpu()
                    counts[name] = counts.get(name, 0) + 1
        self.method.eval()
        return {name: float(sums[name]) / counts[name] for name in sums}

    def _terms(self, batch: Batch) -> dict[str, Tensor]:
        half = self.settings.precision == "bfloat16"
        with (
            _in_bfloat16(self.method) if half else nullcontext(),
            split_work(self.method, len(batch), Tail, Projector),
        ):
            return self.method.losses(batch, self.rng)

    def _step(self, terms: dict[str, Tensor]) -> None:
        self._optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        average(parameter.grad for parameter in self.method.parameters())
        self._optimiser.step()

    # -- batches ----------------------------------------------------------------------------------

    def _parts(self) -> list[Tensor]:
        """Positions of each batch of an epoch."""
        order = torch.randperm(len(self.stage.tokens), generator=self.rng)
        parts = order.split(self.settings.batch_size)
        if self.method.only_full_batches and len(parts) > 1:
            return [part for part in parts if len(part) == self.settings.batch_size]
        return [part for part in parts if len(part) != 1 or len(order) == 1]  # contrast needs two

    @contextmanager
    def _reading(self) -> Iterator[Callable[[Tensor], Callable[[], Batch]]]:
        """Yield what takes positions and returns a way to get their batch.

        With `prefetch` a thread starts to read at once; otherwise reading waits until then.
        """
        if not self.settings.prefetch:
            yield lambda positions: partial(self._read, positions)
            return
        with ThreadPoolExecutor(1) as thread:
            yield lambda positions: thread.submit(self._read, positions).result

    def _read(self, positions: Tensor) -> Batch:
        device = next(self.method.parameters()).device
        mine = Split(len(positions)).mine
        first, second = self.stage.tokens.pair(positions, self.rng, mine)
        views = (onto(first, device), onto(second, device), positions.to(device))
        if isinstance(self.stage, LabelledStage):
            return LabelledBatch(*views, labels=self.stage.labels[positions].to(device))
        return Batch(*views)

    def _require_finite(self, terms: dict[str, Tensor], epoch: int, step: int) -> None:
        if bool(torch.isfinite(torch.stack([term.detach() for term in terms.values()]).sum())):
            return
        listed = ", ".join(f"{name} = {float(term.detach()):g}" for name, term in terms.items())
        raise GoalError(
            f"The loss is not finite at stage {self.stage.index}, epoch {epoch + 1}, step "
            f"{step + 1}: {listed}. The last good checkpoint is kept. Lower training.base_lr or "
            f"training.stage_lr, or look at the term that broke."
        )


@contextmanager
def _in_bfloat16(method: Method) -> Iterator[None]:
    """Let tails and projectors multiply in bfloat16; what they give, and the losses, are float32.

    Losses are cheap, and some of them take logarithms of numbers near one.
    """

    def rounded(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*inputs: Any) -> Tensor:
            with torch.autocast(next(method.parameters()).device.type, torch.bfloat16):
                return forward(*inputs).float()

        return call

    heavy = [part for part in method.modules() if isinstance(part, (Tail, Projector))]
    for part in heavy:
        part.__dict__["forward"] = rounded(part.forward)
    try:
        yield
    finally:
        for part in heavy:
            del part.__dict__["forward"]


def onto(tokens: Tokens, device: torch.device) -> Tokens:
    """Move tokens to a device; to a GPU through pinned memory, from which copies are fastest.

    The GPU's branch could not be run on the machines this was written on.
    """
    if device.type == "cuda":
        pinned = tokens.normalised.pin_memory(), tokens.cls.pin_memory()
        tokens = replace(tokens, normalised=pinned[0], cls=pinned[1])
    return tokens.to(device)


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
