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
FAR = 0.99  # share of the known classes' own images that lie within the edge
CHANCE = 0.01  # how often known images alone may pass for something new

_SHRINK = 0.5


class Edge(NamedTuple):
    """How far known classes reach: tensors only, so it can be stored as is.

    Attributes:
        distance: Within it lie `FAR` of the labelled images that were left out.
        inside: How many of these there were.
        beyond: How many lay beyond.
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
    edge = torch.quantile(held, FAR) if len(held) else held.new_tensor(0.0)
    beyond = int((held > edge).sum())
    return Edge(edge, torch.tensor(len(held) - beyond), torch.tensor(beyond))


def chance_of_known(features_ND: Tensor, means_KD: Tensor, within_DD: Tensor, edge: Edge) -> float:
    """Chance of as many images beyond the edge if all are of known classes (Fisher's exact test).

    0 where stage 0 had too few images to leave any out: then nothing speaks against new classes.
    """
    from scipy.stats import hypergeom

    held = int(edge.inside) + int(edge.beyond)
    if not held:
        return 0.0
    features, means = features_ND.double().cpu(), means_KD.double().cpu()
    beyond = int((distances(features, means, within_DD.double().cpu()) > edge.distance).sum())
    total = beyond + int(edge.beyond)
    return float(hypergeom.sf(beyond - 1, held + len(features), total, len(features)))


def distances(features_ND: Tensor, means_KD: Tensor, within_DD: Tensor) -> Tensor:
    """Distance to the nearest mean, in deviations of images about their class mean, (N,)."""
    ball = within_DD.trace() / len(within_DD) * torch.eye(len(within_DD), dtype=torch.float64)
    root_DD = torch.linalg.cholesky((1 - _SHRINK) * within_DD + _SHRINK * ball + 1e-12 * ball)
    whiten_DD = torch.linalg.inv(root_DD).T
    return torch.cdist(features_ND @ whiten_DD, means_KD @ whiten_DD).amin(dim=1)
