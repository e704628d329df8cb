"""Ids written as text, and a score to fill in."""

import numpy as np

from goal.common.arrays import IntArray
from goal.evaluation.metrics import StageScore

BLANK = StageScore(0, 0.0, 0.0, None, 0.0, None, 0.0, 0.0, 0.0, 1)


def ids(text: str) -> IntArray:
    return np.array([int(part) for part in text.split()], dtype=np.int64)
