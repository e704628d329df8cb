"""Classification without labels: targets from the other view, and entropy of the mean prediction.

Shapes: B images, K classes; scores are cosines, not yet divided by a temperature.
"""

import torch
from torch import Tensor

_TINY = 1e-8


def self_distillation(
    first_BK: Tensor, second_BK: Tensor, student_temperature: float, teacher_temperature: float
) -> Tensor:
    """Cross-entropy of each view towards the other view's sharper prediction.

    The first term of L_cls^u (GOAL, eq. 11).

    ``H(z, s)`` with ``z = softmax(other / teacher_temperature)`` taken as a constant and
    ``s = softmax(own / student_temperature)``, averaged over both directions.
    """

    def one_way(student: Tensor, teacher: Tensor) -> Tensor:
        target = (teacher.detach() / teacher_temperature).softmax(dim=1)
        return -(target * (student / student_temperature).log_softmax(dim=1)).sum(dim=1).mean()

    return (one_way(first_BK, second_BK) + one_way(second_BK, first_BK)) / 2


def entropy(probabilities: Tensor) -> Tensor:
    """Shannon entropy along the last dimension, in nats."""
    return -(probabilities * probabilities.clamp_min(_TINY).log()).sum(dim=-1)


def negative_mean_entropy(probabilities_BK: Tensor) -> Tensor:
    """``-H(mean prediction)``: low when all classes are used.

    The second term of L_cls^u (GOAL, eq. 11), less its weight epsilon.
    """
    return -entropy(probabilities_BK.mean(dim=0))


def negative_group_entropy(probabilities_BK: Tensor, num_known: int) -> Tensor:
    """Entropy of the mean prediction in two levels (Happy, section 4.1), negated.

    ``-(H(known mass, new mass) + H(within known) + H(within new))``: known and new classes as
    groups must both be used, and so must the classes inside each group, without known classes
    competing with new ones for mass.
    """
    mean_K = probabilities_BK.mean(dim=0)
    groups = [group for group in (mean_K[:num_known], mean_K[num_known:]) if len(group)]
    masses = torch.stack([group.sum() for group in groups])
    within = [entropy(group / group.sum().clamp_min(_TINY)) for group in groups]
    return -(entropy(masses) + torch.stack(within).sum())
