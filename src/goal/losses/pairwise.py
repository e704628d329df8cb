"""Discovery by pairs: which two images look alike, and whether the head puts them together.

Shapes: B images, D feature width, C classes of the head. Probabilities are softmax outputs.
"""

import math

import torch.nn.functional as F
from torch import Tensor

_TINY = 1e-6


def alike_by_cosine(features_BD: Tensor, threshold: float) -> Tensor:
    """Decide which pairs are alike: ``s_ij = 1 if cos(f_i, f_j) >= threshold else 0``.

    The cosine form of the pairs that AutoNovel (Han et al., ICLR 2020), FRoST and GM find by rank
    statistics. Those ask whether the same five dimensions are largest for both images, which means
    something for the non-negative features behind a ReLU only: on signed features, as transformers
    and principal axes have them, hardly any pair ever passes.

    Args:
        features_BD: Features, of any length.
        threshold: Smallest cosine of a positive pair.

    Returns:
        1 for positive pairs and 0 for the others, (B, B); an image is always like itself.
    """
    unit = F.normalize(features_BD.detach(), dim=1)
    alike = unit @ unit.T >= threshold
    return alike.fill_diagonal_(True).to(features_BD.dtype)


def pairwise_bce(first_BC: Tensor, second_BC: Tensor, targets_BB: Tensor) -> Tensor:
    """Binary cross-entropy of "both images have the same class" (AutoNovel).

    ``-mean_ij [s_ij log <p_i, q_j> + (1 - s_ij) log(1 - <p_i, q_j>)]``: the inner product of image
    i's prediction p in one view and image j's prediction q in the other is the probability that
    they agree; the mean is over all B^2 pairs, i = j included.

    Args:
        first_BC: Predictions of the first views.
        second_BC: Predictions of the second views.
        targets_BB: 1 where a pair belongs together, else 0.
    """
    together = (first_BC @ second_BC.T).clamp(_TINY, 1 - _TINY)
    return -(targets_BB * together.log() + (1 - targets_BB) * (1 - together).log()).mean()


def consistency(first_BC: Tensor, second_BC: Tensor) -> Tensor:
    """Mean squared difference of the two views' predictions, over all entries (AutoNovel).

    ``mean_ic (p_ic - q_ic)^2``; both views get a gradient.
    """
    return (first_BC - second_BC).square().mean()


def ramp_up(epoch: int, length: float) -> float:
    """Sigmoid-shaped ramp ``exp(-5 (1 - epoch / length)^2)``, and 1 from `length` on.

    Laine and Aila, "Temporal ensembling" (ICLR 2017), as AutoNovel and FRoST weight consistency
    and pseudo-labels.
    """
    missing = 1 - min(epoch / length, 1.0) if length > 0 else 0.0
    return math.exp(-5 * missing**2)
