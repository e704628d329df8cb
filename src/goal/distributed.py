"""Ranks: processes that `torchrun` starts to train one model together.

Inside a training step everything is the same on all ranks, except tokens: each rank holds those of
its part of the batch. A tail runs on that part and gathers the features of the whole batch; a
projector takes its part of the rows and gathers them again. So every rank evaluates the loss of
the whole batch, methods do not know about ranks, and contrast between images of different ranks
has its gradient. Where several ranks compute a thing together, the gradient of their own part is
scaled by the number of ranks; where all compute the same, it is not; then the mean over ranks is
the gradient of one process.

With a single process every function here does nothing.

Shapes: R ranks, B images of the batch, m = ceil(B / R) of a rank (the last ones are padded).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from goal.common.errors import GoalError
from goal.storage.locks import locked

Item = TypeVar("Item")

# Long enough to wait for another run that fills the token bank. A rank that dies is noticed at
# once: by torchrun, and by the others through their closed connection.
_PATIENCE = timedelta(days=2)


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0


def ranks() -> Ranks:
    """Return this process's place among those that have joined."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return Ranks()


@contextmanager
def joined(device: str) -> Iterator[torch.device]:
    """Join the processes that torchrun started, if it did; yield the device of this one.

    ``cuda`` then means the GPU of the local rank. That, and NCCL, cannot be tried on a machine
    without GPUs; gloo, for everything on the CPU, is tested.
    """
    launched = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if not launched or int(os.environ["WORLD_SIZE"]) == 1 or dist.is_initialized():
        yield usable(device)
        return
    if device.partition(":")[0] == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    place = usable(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    with _contact():
        dist.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield place
    finally:
        dist.destroy_process_group()


def usable(name: str) -> torch.device:
    """Return the device, or raise an error if there is no such thing here."""
    try:
        device = torch.device(name)
        float(torch.zeros((), device=device))
    except (RuntimeError, AssertionError) as error:
        first = str(error).partition("\n")[0]
        raise GoalError(f"Cannot compute on the device '{name}': {first}. Try cpu.") from error
    return device


@contextmanager
def _contact() -> Iterator[None]:
    """Turn the loss of another rank into a message."""
    try:
        yield
    except RuntimeError as error:
        raise GoalError(
            f"Lost contact with another rank, which has failed or was ended; its own message says "
            f"why. `goal resume` under the same torchrun goes on. ({str(error).splitlines()[0]})"
        ) from error


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; of several ranks the first one does, and the others write nothing."""
    with locked(folder) if ranks().first else nullcontext():
        yield


# -- one for all ------------------------------------------------------------------------------


def wait() -> None:
    """Wait until all ranks are here."""
    if ranks().count > 1:
        with _contact():
            dist.barrier()


@contextmanager
def first_goes_ahead() -> Iterator[None]:
    """Let the first rank do it alone, then all others."""
    if not ranks().first:
        wait()
    yield
    if ranks().first:
        wait()


def by_first(work: Callable[[], Item]) -> Item:
    """Do the work on the first rank only, and give its result to all."""
    here = ranks()
    result = [work() if here.first else None]
    if here.count > 1:
        with _contact():
            dist.broadcast_object_list(result, src=0)
    return result[0]  # type: ignore[return-value]


def collect(mine: Item) -> list[Item]:
    """Return what each rank holds, in order."""
    here = ranks()
    if here.count == 1:
        return [mine]
    found: list[Any] = [None] * here.count
    with _contact():
        dist.all_gather_object(found, mine)
    return found


def agree(tensors: Iterable[Tensor]) -> None:
    """Give all ranks the first one's values, in place: unlike machines round differently."""
    if ranks().count > 1:
        with _contact():
            for tensor in tensors:
                flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
                if len(flat):
                    dist.broadcast(flat, src=0)
                    tensor.detach().copy_(flat.view(tensor.dtype).view_as(tensor))


def average(tensors: Iterable[Tensor | None]) -> None:
    """Replace gradients by their mean over ranks, in one message; None stays None."""
    count = ranks().count
    present = [tensor for tensor in tensors if tensor is not None]
    if count == 1 or not present:
        return
    flat = torch.cat([tensor.flatten() for tensor in present])
    with _contact():
        dist.all_reduce(flat)
    flat /= count
    for tensor, piece in zip(present, flat.split([t.numel() for t in present]), strict=True):
        tensor.copy_(piece.view_as(tensor))


# -- parts of a batch -------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """How B rows are divided among ranks: equal parts in order, the end padded by the last row."""

    size: int

    @property
    def mine(self) -> Tensor:
        """Rows of this rank, (m,)."""
        here = ranks()
        part = -(-self.size // here.count)
        rows = torch.arange(here.rank * part, (here.rank + 1) * part)
        return rows.clamp(max=self.size - 1)

    def gather(self, own: Tensor) -> Tensor:
        """Join the parts of all ranks, (V m, ...) each, into (V B, ...), with gradients.

        V is the number of views, one above the other.
        """
        if ranks().count == 1:
            return own
        part = len(self.mine)
        views = len(own) // part
        whole: Tensor = _Gather.apply(own)  # type: ignore[no-untyped-call]
        whole = whole.unflatten(1, (views, part)).transpose(0, 1).flatten(1, 2)
        return whole[:, : self.size].flatten(0, 1)

    def take(self, whole: Tensor) -> Tensor:
        """Rows of this rank out of rows that all ranks hold, with gradients."""
        if ranks().count == 1:
            return whole
        taken: Tensor = _Take.apply(whole, self)  # type: ignore[no-untyped-call]
        return taken


class _Gather(torch.autograd.Function):
    """(m, ...) on each rank to (R, m, ...) on all."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        whole = own.new_empty(ranks().count, *own.shape)
        with _contact():
            dist.all_gather(list(whole.unbind()), own.contiguous())
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        here = ranks()
        return gradients[0][here.rank] * here.count


class _Take(torch.autograd.Function):
    """The opposite: the gradient of every rank's rows reaches all ranks."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, split: Split) -> Tensor:
        ctx.split = split
        return whole[split.mine.to(whole.device)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gathered = ctx.split.gather(gradients[0])
        return gathered / ranks().count, None


@contextmanager
def split_work(
    model: nn.Module, size: int, tails: type[nn.Module], projectors: type[nn.Module]
) -> Iterator[None]:
    """Within a step on a batch of `size`, let ranks share the work of tails and projectors."""
    with ExitStack() as hooks:
        if ranks().count > 1:
            for module in model.modules():
                if isinstance(module, tails):
                    hooks.callback(module.register_forward_hook(_gathers(size)).remove)
                elif isinstance(module, projectors):
                    before, after = _shares()
                    hooks.callback(module.register_forward_pre_hook(before).remove)
                    hooks.callback(module.register_forward_hook(after).remove)
        yield


def _gathers(size: int) -> Callable[..., Tensor]:
    return lambda module, given, output: Split(size).gather(output)


def _shares() -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    splits: list[Split] = []

    def before(module: nn.Module, given: tuple[Tensor]) -> Tensor:
        splits.append(Split(len(given[0])))
        return splits[-1].take(given[0])

    def after(module: nn.Module, given: tuple[Tensor], output: Tensor) -> Tensor:
        return splits.pop().gather(output)

    return before, after
