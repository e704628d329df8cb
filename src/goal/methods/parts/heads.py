"""Head initialisation: how the classifier weights of new classes start."""

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.numerics.clustering import kmeans, split_high


def farthest_centroids(
    features_ND: Tensor, known_KD: Tensor, num_new: int, rng: torch.Generator
) -> Tensor:
    """Happy's initialisation: of K_known + K_new centroids, those least like any known class.

    Args:
        features_ND: Unit features of the stage's images under the previous model.
        known_KD: Unit weights of the known classes.
        num_new: Classes to add.
        rng: Source of the k-means starts.

    Returns:
        Unit vectors, (num_new, D).
    """
    clusters = min(len(known_KD) + num_new, len(features_ND))
    _, centres = kmeans(features_ND, clusters, rng)
    centres = F.normalize(centres, dim=1)
    return _filled(centres[farthest(centres, known_KD, num_new)], num_new, rng)


def farthest(centres_CD: Tensor, known_KD: Tensor, count: int) -> Tensor:
    """Numbers of the unit vectors that are least like any known one, at most `count`."""
    return (centres_CD @ known_KD.T).amax(dim=1).argsort(stable=True)[:count]


def novelty_centroids(
    features_ND: Tensor, known_KD: Tensor, num_new: int, rng: torch.Generator
) -> Tensor:
    """Ask first what is novel: split the images by distance to known classes, cluster that part.

    A two-component mixture over ``1 - max cosine`` separates likely known from likely novel
    images; k-means on the novel part gives the new weights, (num_new, D).
    """
    distance = 1 - (features_ND @ known_KD.T).amax(dim=1)
    novel = features_ND[split_high(distance, rng)]
    if len(novel) < num_new:
        novel = features_ND[distance.argsort(descending=True, stable=True)[:num_new]]
    _, centres = kmeans(novel, min(num_new, len(novel)), rng, restarts=20)
    return _filled(F.normalize(centres, dim=1), num_new, rng)


def random_directions(
    features_ND: Tensor, known_KD: Tensor, num_new: int, rng: torch.Generator
) -> Tensor:
    """Look at nothing: random unit vectors, (num_new, D)."""
    return _filled(known_KD[:0], num_new, rng)


def _filled(rows_MD: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Top up with random unit vectors when a stage has fewer images than new classes."""
    missing = count - len(rows_MD)
    random = torch.randn(missing, rows_MD.shape[1], generator=rng).to(rows_MD)
    return torch.cat([rows_MD, F.normalize(random, dim=1)])
