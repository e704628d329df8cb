"""Distillation: the previous model's features and predictions are kept.

Shapes: B images, D features, K classes that both models know.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_ROUNDING = 1e-6  # distance of equal unit vectors in single precision


def feature_distillation(features_BD: Tensor, previous_BD: Tensor) -> Tensor:
    """Mean squared distance to the previous stage's features, both unit length (Happy, L_kd)."""
    return (features_BD - previous_BD).square().sum(dim=1).mean()


def batch_distillation(features_BD: Tensor, previous_BD: Tensor) -> Tensor:
    """Distance to the previous stage's features, the batch being one long vector (FRoST, L_kd).

    ``| F / |F| - G / |G| |``, not squared, with F and G the flattened features of the batch: its
    pull does not fade as the features come near. Where they are equal, but for rounding, the
    gradient is zero: the direction of a rounding error would have the full pull.
    """
    own, previous = (F.normalize(each.flatten(), dim=0) for each in (features_BD, previous_BD))
    away = own - previous
    equal = torch.linalg.vector_norm(away.detach()) < _ROUNDING
    distance: Tensor = torch.linalg.vector_norm(torch.where(equal, 0, away))
    return distance


def logit_distillation(logits_BK: Tensor, previous_BK: Tensor, temperature: float) -> Tensor:
    """Keep the prediction over known classes as the previous model had it (LwF, eq. 2 and 3).

    ``tau^2 KL(softmax(previous / tau) || softmax(logits / tau))``, the mean over images, with
    the previous logits as constants.

    Deviation: LwF writes the cross-entropy, whose gradient is the same; the divergence is zero
    when nothing has moved. ``tau^2`` (Hinton et al., 2015) keeps the gradient's size independent
    of the temperature.

    Args:
        logits_BK: Logits of the current model for the known classes only.
        previous_BK: Logits of the previous model for the same views.
        temperature: Softens both predictions; LwF takes 2.
    """
    target = (previous_BK.detach() / temperature).log_softmax(dim=1)
    own = (logits_BK / temperature).log_softmax(dim=1)
    return temperature**2 * F.kl_div(own, target, reduction="batchmean", log_target=True)
