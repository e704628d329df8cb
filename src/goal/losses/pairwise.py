"""Discovery by pairs: which two images look alike, and whether the head puts them together.

Shapes: B images, D feature width, C classes of the head. Probabilities are softmax outputs.
"""

import math

from torch import Tensor

_TINY = 1e-6


def rank_statistics(features_BD: Tensor, top: int) -> Tensor:
    """Decide which pairs are alike (Han et al., AutoNovel, ICLR 2020; also FRoST).

    ``s_ij = 1 if top_k(f_i) = top_k(f_j) else 0``: a pair is positive if the same k dimensions are
    largest for both images, whatever their order. Largest in value: AutoNovel's features follow a
    ReLU, so that value and magnitude agree; ours have signs.

    Args:
        features_BD: Features, of any length.
        top: How many dimensions count; all of them when there are fewer.

    Returns:
        1 for positive pairs and 0 for the others, (B, B).
    """
    largest = features_BD.detach().topk(min(top, features_BD.shape[1]), dim=1).indices
    largest = largest.sort(dim=1).values
    same = (largest[:, None] == largest[None, :]).all(dim=2)
    return same.to(features_BD.dtype)


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
