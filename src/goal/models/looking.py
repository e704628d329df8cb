"""Looking at images that are not banked: read, used and forgotten."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from goal.backbone.tokens import Tokens, TokenSource
from goal.bank.bank import TokenBank
from goal.bank.readers import run_trunk
from goal.bank.shelf import decode, encode, row_dtype
from goal.common.arrays import Pixels
from goal.data.decoding import UnreadableImage
from goal.data.own_images import ImageSet
from goal.data.transforms import clean
from goal.features.bank import FeatureBank
from goal.learning.learner import Learner
from goal.methods.base import Outputs

_BATCH = 2048
_READERS = 8


class Seen(NamedTuple):
    """What is kept of images that were looked at, (N,) each.

    Attributes:
        best: Best class, as a position among those not merged.
        confidence: Its probability.
        second: Second-best class; -1 if there is only one.
        second_confidence: Its probability.
        strange: Share of known images that are as far from all classes, or farther; 1 from
            methods that cannot tell.
    """

    best: Tensor
    confidence: Tensor
    second: Tensor
    second_confidence: Tensor
    strange: Tensor


def two_best(probabilities_NC: Tensor, strange_N: Tensor | None) -> Seen:
    """The two likeliest classes of each image, and how strange it is."""
    found = probabilities_NC.topk(min(2, probabilities_NC.shape[1]), dim=1)
    best, sure = found.indices[:, 0], found.values[:, 0]
    alone = found.indices.shape[1] == 1
    second = torch.full_like(best, -1) if alone else found.indices[:, 1]
    less = torch.zeros_like(sure) if alone else found.values[:, 1]
    strange = torch.ones_like(sure) if strange_N is None else strange_N
    columns = (best, sure, second, less, strange)
    return Seen(*(column.cpu() for column in columns))


def look_banked(learner: Learner, tokens: TokenSource) -> Iterator[tuple[Outputs, Tensor]]:
    """What the method makes of banked images, batch by batch, and their scores."""
    for part in torch.arange(len(tokens)).split(_BATCH):
        yield learner.look(tokens.clean(part))


def look_at(
    learner: Learner, given: ImageSet, lost: dict[int, str]
) -> Iterator[tuple[Outputs, Tensor]]:
    """The same for any images. Ones that prove unreadable are entered in `lost`, by position."""
    if isinstance(learner.bank, FeatureBank):
        for tokens in learner.bank.passing(given, lost):
            yield learner.look(tokens)
        return
    assert isinstance(learner.bank, TokenBank)
    trunk = learner.bank.trunk
    transform, size = learner.settings.transform, learner.settings.bank.batch_size

    def crop(index: int) -> Pixels | None:
        try:
            return clean(given.images.image(index), transform)
        except UnreadableImage as error:
            lost[index] = error.reason
            return None

    starts = range(0, len(given), size)
    with ThreadPoolExecutor(_READERS) as pool:
        for start in learner.reporter.track(starts, len(starts), "Looking at images"):
            part = range(start, min(start + size, len(given)))
            crops = [crop for crop in pool.map(crop, part) if crop is not None]
            if crops:
                tokens = run_trunk(trunk, np.stack(crops), min(size, len(part)))
                yield learner.look(_rounded(tokens, learner.settings.bank.dtype))


def _rounded(tokens: Tokens, dtype: str) -> Tokens:
    """Tokens as the bank would give them back."""
    _, count, width = tokens.normalised.shape
    return decode(encode(tokens, row_dtype({"dtype": dtype, "tokens": count, "width": width})))


def pooled(scores_NK: Tensor, owner: list[int], kept: list[int] | None = None) -> Tensor:
    """Best score among the classes merged into one, (N, classes that are not merged).

    Args:
        scores_NK: A score of each class.
        owner: The class that each counts as.
        kept: Those of them that are wanted, by default all.
    """
    kept = sorted(set(owner)) if kept is None else kept
    place = {id: column for column, id in enumerate(kept)}
    column = torch.tensor([place.get(id, len(kept)) for id in owner], device=scores_NK.device)
    best = torch.full((len(scores_NK), len(kept) + 1), -torch.inf).to(scores_NK)
    return best.scatter_reduce(1, column.expand_as(scores_NK), scores_NK, "amax")[:, :-1]
