"""How strange an image is: calibrated on labelled images that were held out.

Shapes: N images.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

MOST = 5000  # labelled images that are held out, evenly of each class
FOLDS = 5


def folds(labels_N: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield positions to learn from and positions held out; each image is held out once.

    Images of a class go round the folds, so that each class is among those learned from. A class
    of a single image is never held out: nothing else would know it.
    """
    chosen = some_of_each(labels_N, MOST)
    labels = labels_N[chosen]
    order = labels.argsort(stable=True)
    sizes = torch.bincount(labels, minlength=count)
    place = torch.arange(len(labels), device=labels.device)
    within = torch.empty_like(place)
    within[order] = place - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    single = sizes[labels] < 2
    for fold in range(FOLDS):
        out = (within % FOLDS == fold) & ~single
        if bool(out.any()):
            yield chosen[~out], chosen[out]


def some_of_each(labels_N: Tensor, most: int) -> Tensor:
    """Positions of at most `most` images, evenly taken from each class; all if there are fewer."""
    if len(labels_N) <= most:
        return torch.arange(len(labels_N), device=labels_N.device)
    each = max(1, most // int(labels_N.max() + 1))
    order = labels_N.argsort(stable=True)
    counts = torch.bincount(labels_N)
    first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    step = torch.repeat_interleave(-(-counts // each), counts)
    places = torch.arange(len(order), device=labels_N.device)
    return order[(places - first) % step == 0].sort().values


def share_above(ascending_M: Tensor, values_N: Tensor) -> Tensor:
    """Share of some values that are at least as large as each of others, (N,)."""
    below = torch.searchsorted(ascending_M, values_N.contiguous(), right=False)
    return 1 - below / len(ascending_M)
