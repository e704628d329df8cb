"""How alike two images of one class are, learned from labelled ones."""

import torch
import torch.nn.functional as F
from torch import Tensor

_MOST = 2048  # images whose pairs are counted


@torch.no_grad()
def break_even_cosine(features_ND: Tensor, labels_N: Tensor, rng: torch.Generator) -> float:
    """Cosine above which there are as many pairs of images as there are pairs of one class.

    Calling such pairs alike is wrong as often as calling the others different. At most 2048
    images are looked at, chosen at random. Without a pair of one class nothing is alike but an
    image and itself: the answer is 1.
    """
    chosen = torch.randperm(len(labels_N), generator=rng)[:_MOST].to(features_ND.device)
    unit, labels = F.normalize(features_ND[chosen], dim=1), labels_N[chosen]
    above = torch.ones(len(chosen), len(chosen), dtype=torch.bool).triu(1).to(unit.device)
    same = int((labels[:, None] == labels[None, :])[above].sum())
    if not same:
        return 1.0
    cosines = (unit @ unit.T)[above]
    return float(cosines.topk(same).values[-1])
