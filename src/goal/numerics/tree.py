"""Which classes lie near each other, as a tree: for people who decide what to merge.

Classes are joined by average linkage of their means: first the two nearest, then again and again
the two groups whose classes are nearest on average (Sokal and Michener 1958).

Shapes: K classes, d dimensions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Branch:
    """A group of classes: one class, or two groups that were joined.

    Attributes:
        classes: Ids of all its classes, in the order in which a picture shows them best.
        height: Mean distance between the classes of its two sides; 0 for one class.
        sides: The two groups it was joined from; empty for one class.
    """

    classes: tuple[int, ...]
    height: float
    sides: tuple["Branch", ...]


def class_tree(means_Kd: Places) -> Branch:
    """Join classes to one tree.

    Args:
        means_Kd: Means of at least one class, in the space where new classes are looked for, in
            which distances have the same unit in every direction.
    """
    from scipy.cluster.hierarchy import linkage, optimal_leaf_ordering
    from scipy.spatial.distance import pdist

    branches = [Branch((index,), 0.0, ()) for index in range(len(means_Kd))]
    if not branches:
        raise ValueError("A tree needs at least one class.")
    if len(means_Kd) > 1:
        distances = pdist(means_Kd.astype(np.float64))
        joins = optimal_leaf_ordering(linkage(distances, "average"), distances)
        for first, second, height, _ in joins:
            sides = branches[int(first)], branches[int(second)]
            classes = sides[0].classes + sides[1].classes
            branches.append(Branch(classes, float(height), sides))
    return branches[-1]


def merge_candidates(means_Kd: Places, num_labelled: int, most: int = 10) -> list[tuple[int, int]]:
    """Pairs of classes that may be one, nearest first: each with a discovered class in it.

    A pair qualifies if each is the other's nearest class, or if it lies nearer than any two
    labelled classes do, which are known to be two.

    Args:
        means_Kd: Means, the labelled classes first.
        num_labelled: Labelled classes.
        most: Pairs to return, at most.
    """
    from scipy.spatial.distance import cdist

    distance_KK = cdist(means_Kd.astype(np.float64), means_Kd.astype(np.float64))
    np.fill_diagonal(distance_KK, np.inf)
    labelled = distance_KK[:num_labelled, :num_labelled]
    limit = float(labelled.min(initial=np.inf)) if num_labelled > 1 else 0.0
    nearest = distance_KK.argmin(axis=1)
    rows, columns = np.triu_indices(len(means_Kd), k=1)
    mutual = (nearest[rows] == columns) & (nearest[columns] == rows)
    apart = distance_KK[rows, columns]
    chosen = (columns >= num_labelled) & (mutual | (apart < limit))
    order = np.argsort(apart[chosen], kind="stable")[:most]
    return list(zip(rows[chosen][order].tolist(), columns[chosen][order].tolist(), strict=True))
