"""Which images of a class people are shown."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.arrays import IntArray

PER_ROW = 6
MAX_CLASSES = 200


@dataclass(frozen=True)
class Choice:
    """Positions of the images to show of one predicted class.

    Attributes:
        predicted: The predicted class.
        size: Images predicted to be of it.
        wrong: How many of them truly are of another class.
        most, least, mistaken: Positions, most confident first but for `least`.
    """

    predicted: int
    size: int
    wrong: int
    most: IntArray
    least: IntArray
    mistaken: IntArray


def choose(
    predictions: IntArray,
    truth: IntArray,
    owner: IntArray,
    confidence: npt.NDArray[np.floating[Any]],
    num_base: int,
) -> list[Choice]:
    """Choose images of every discovered class: sure ones, unsure ones, and mistakes.

    A predicted class is discovered if no base class matches it. Of more than `MAX_CLASSES`, so
    many are taken, evenly spread.

    Args:
        predictions: Predicted class of each image, (N,).
        truth: True class of each image, (N,).
        owner: True class that matches each predicted class, -1 for none, (K,).
        confidence: How sure the method is of each image, (N,).
        num_base: Base classes.
    """
    found = np.flatnonzero((owner >= num_base) | (owner < 0))
    order = np.argsort(-confidence, kind="stable")
    choices = []
    for predicted in evenly(found, MAX_CLASSES).tolist():
        members = order[predictions[order] == predicted]
        wrong = members[truth[members] != owner[predicted]]
        rest = members[PER_ROW:]
        choices.append(
            Choice(
                predicted,
                len(members),
                len(wrong),
                members[:PER_ROW],
                rest[::-1][:PER_ROW],
                wrong[:PER_ROW],
            )
        )
    return choices


def evenly(items: IntArray, limit: int) -> IntArray:
    """Return at most `limit` of the items, evenly spread, first and last among them."""
    if len(items) <= limit:
        return items
    return items[np.linspace(0, len(items) - 1, limit).round().astype(np.int64)]
