"""Contrast with neighbours in place of labels.

Shapes: B images, V = 2B views (first views above second ones), E embedding width; all embeddings
are unit vectors.
"""

import torch
from torch import Tensor


def soft_sup_con(
    first_BE: Tensor, second_BE: Tensor, threshold: float, temperature: float
) -> Tensor:
    """Supervised contrast whose positives are likely neighbours (MetaGCD, soft contrast).

    Two images are as similar as the closest pair of their views: ``s_ij = max cosine``. The
    neighbourhood of i is ``N_i = {j : s_ij >= threshold}``, i included, and its members weigh
    ``w_ij = softmax over N_i of s_ij``. For a view of image i, the loss is

        - sum over j in N_i of w_ij * mean over views u of j (but not itself) of log p(u)

    with p the softmax over every other view; then the mean over the views of images that have a
    neighbour besides themselves, and zero if no image has one.

    Deviation: weights add up to 1, where the public code scales the largest to 1 and divides by
    the number of positives: on cosines in [0.85, 1] the two differ by a factor near 1. Weights
    are constants, since otherwise pushing neighbours apart would lower the loss. Images without
    a neighbour still serve as negatives.

    Args:
        first_BE: Embeddings of the first views.
        second_BE: Embeddings of the second views.
        threshold: Smallest cosine of a neighbour; the paper takes 0.85.
        temperature: Divides cosines in the softmax over views, as in SupCon.
    """
    embeddings_VE = torch.cat([first_BE, second_BE])
    cosines_VV = embeddings_VE @ embeddings_VE.T
    itself_VV = torch.eye(len(cosines_VV), dtype=torch.bool, device=cosines_VV.device)
    log_share_VV = (cosines_VV / temperature).masked_fill(itself_VV, -1e9).log_softmax(dim=1)
    weights_BB = neighbour_weights(cosines_VV.detach(), threshold)
    social_B = (weights_BB > 0).sum(dim=1) > 1
    if not bool(social_B.any()):
        return embeddings_VE.sum() * 0
    pairs_VV = weights_BB.repeat(2, 2)
    own_VV = torch.eye(len(first_BE), dtype=torch.bool, device=cosines_VV.device).repeat(2, 2)
    # An image gives two positives, except the view's own, which gives only the other view.
    pairs_VV = torch.where(own_VV, pairs_VV, pairs_VV / 2).masked_fill(itself_VV, 0)
    return -(log_share_VV * pairs_VV).sum(dim=1)[social_B.repeat(2)].mean()


def neighbour_weights(cosines_VV: Tensor, threshold: float) -> Tensor:
    """Weight of each image in the neighbourhood of each, (B, B); rows add up to 1."""
    batch = len(cosines_VV) // 2
    similarity_BB = cosines_VV.view(2, batch, 2, batch).amax(dim=(0, 2))
    outside = similarity_BB < threshold
    outside.fill_diagonal_(False)  # rounding must not expel an image from its own neighbourhood
    return similarity_BB.masked_fill(outside, -torch.inf).softmax(dim=1)
