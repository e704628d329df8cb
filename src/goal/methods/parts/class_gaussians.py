"""Memory of past classes without their images: a mean and a variance of each one's features."""

import torch
from torch import Tensor, nn

from goal.numerics.clustering import class_means


class ClassGaussians(nn.Module):
    """What is kept of past classes: the mean and the variance of each one's features."""

    means: Tensor
    variances: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.empty(0, width))
        self.register_buffer("variances", torch.empty(0, width))

    def __len__(self) -> int:
        return len(self.means)

    def remember(self, features_ND: Tensor, classes_N: Tensor, instead_KD: Tensor) -> None:
        """Append K classes, of which image n has number ``classes_N[n]``.

        Those without images take their row of `instead_KD` as their mean, and the mean variance
        of all classes that have some.
        """
        count = len(instead_KD)
        means = class_means(features_ND, classes_N, count)
        variances = class_means((features_ND - means[classes_N]).square(), classes_N, count)
        found = torch.bincount(classes_N, minlength=count) > 0
        measured = torch.cat([self.variances, variances[found]])
        usual = measured.mean(dim=0) if len(measured) else torch.zeros_like(means[0])
        self.means = torch.cat([self.means, torch.where(found[:, None], means, instead_KD)])
        self.variances = torch.cat(
            [self.variances, torch.where(found[:, None], variances, usual.expand_as(variances))]
        )

    def sample(
        self, per_class: int, rng: torch.Generator, one_spread: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Draw features of every class, (K x per_class, D), and their classes.

        With `one_spread` all classes have the mean standard deviation, as in FRoST.
        """
        classes = torch.arange(len(self), device=self.means.device).repeat_interleave(per_class)
        noise = torch.randn(len(classes), self.means.shape[1], generator=rng).to(self.means)
        spread = self.variances.sqrt()
        spread = spread.mean(dim=0) if one_spread else spread[classes]
        return self.means[classes] + spread * noise, classes
