"""Replay: features drawn around class prototypes stand in for images that are gone."""

import torch
import torch.nn.functional as F
from torch import Tensor


def hardness(prototypes_KD: Tensor, temperature: float) -> Tensor:
    """Probability of replaying each class: softmax of its mean cosine to the others (Happy, eq. 8).

    Classes that lie close to others are confused most, so they are replayed most.
    """
    if len(prototypes_KD) == 1:
        return torch.ones(1, device=prototypes_KD.device)
    unit = F.normalize(prototypes_KD, dim=1)
    cosines = unit @ unit.T
    mean_to_others = (cosines.sum(dim=1) - cosines.diagonal()) / (len(unit) - 1)
    return (mean_to_others / temperature).softmax(dim=0)


def sample_prototypes(
    prototypes_KD: Tensor, radius: Tensor, count: int, temperature: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw `count` features around class prototypes, harder classes more often.

    Returns:
        Features ``mu_c + radius * N(0, I)``, (count, D), and their classes, (count,).
    """
    probabilities = hardness(prototypes_KD, temperature).cpu()
    classes = torch.multinomial(probabilities, count, replacement=True, generator=rng)
    noise = torch.randn(count, prototypes_KD.shape[1], generator=rng)
    classes = classes.to(prototypes_KD.device)
    return prototypes_KD[classes] + radius * noise.to(prototypes_KD.device), classes
