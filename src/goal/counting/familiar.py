"""Whether a stage's images may all be of known classes: a test before anything is counted.

Labelled images that were left out when the classes were measured say how far images of known
classes lie from their means. A stage in which no more images than that lie beyond is nothing new.

Shapes: N images, D features, K known classes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from goal.numerics.clustering import class_means

FOLDS = 5
# Shares of the known classes' own images that lie within each edge. New classes may lie no farther
# out than known images do at the most, but farther than most of them: in many dimensions the last
# edge alone would see nothing, and the first alone nothing of a few.
FAR = (0.5, 0.9, 0.99)
CHANCE = 0.01  # how often known images alone may pass for something new

_SHRINK = 0.5


class Edge(NamedTuple):
    """How far known classes reach: tensors only, so it can be stored as is.

    Attributes:
        distance: Within each lie `FAR` of the labelled images that were left out.
        inside: How many of these there were, for each.
        beyond: How many lay beyond each.
    """

    distance: Tensor
    inside: Tensor
    beyond: Tensor


def measure_edge(features_ND: Tensor, labels_N: Tensor, count: int) -> Edge:
    """Measure at stage 0 how far images of a class lie from a mean that was taken without them."""
    features, labels = features_ND.double().cpu(), labels_N.cpu()
    place = torch.empty_like(labels)
    for label in range(count):
        members = torch.nonzero(labels == label)[:, 0]
        place[members] = torch.arange(len(members))
    found = []
    for fold in range(FOLDS):
        out = place % FOLDS == fold
        rest = torch.bincount(labels[~out], minlength=count)
        if not bool(out.any()) or int(rest.min()) < 2:
            continue
        means = class_means(features[~out], labels[~out], count)
        centred = features[~out] - means[labels[~out]]
        found.append(distances(features[out], means, centred.T @ centred / len(centred)))
    held = torch.cat(found) if found else features.new_empty(0)
    if not len(held):
        return Edge(*(torch.zeros(0) for _ in Edge._fields))
    edge = torch.quantile(held, held.new_tensor(FAR))
    beyond = (held[:, None] > edge).sum(dim=0)
    return Edge(edge, len(held) - beyond, beyond)


def chance_of_known(features_ND: Tensor, means_KD: Tensor, within_DD: Tensor, edge: Edge) -> float:
    """Chance of as many images beyond an edge if all are of known classes.

    Fisher's exact test at each edge, the least chance times the number of edges. 0 where stage 0
    had too few images to leave any out: then nothing speaks against new classes.
    """
    from scipy.stats import hypergeom

    edges = [torch.atleast_1d(part).tolist() for part in edge]
    features, means = features_ND.double().cpu(), means_KD.double().cpu()
    away = distances(features, means, within_DD.double().cpu())
    chances = []
    for distance, inside, outside in zip(*edges, strict=True):
        beyond = int((away > distance).sum())
        total = len(features) + inside + outside
        chances.append(hypergeom.sf(beyond - 1, total, beyond + outside, len(features)))
        if not inside + outside:
            return 0.0
    return min(1.0, len(chances) * float(min(chances))) if chances else 0.0


def distances(features_ND: Tensor, means_KD: Tensor, within_DD: Tensor) -> Tensor:
    """Distance to the nearest mean, in deviations of images about their class mean, (N,)."""
    size = (within_DD.trace() / len(within_DD)).clamp_min(1e-8)  # more than images all alike have
    ball = size * torch.eye(len(within_DD), dtype=torch.float64)
    root_DD = torch.linalg.cholesky((1 - _SHRINK) * within_DD + _SHRINK * ball)
    whiten_DD = torch.linalg.inv(root_DD).T
    return torch.cdist(features_ND @ whiten_DD, means_KD @ whiten_DD).amin(dim=1)
