"""Labels of made-up datasets, their stages, and how to count and compare them."""

from dataclasses import fields
from typing import Any

import numpy as np

from goal.common.arrays import IntArray
from goal.protocol.stages import ProtocolSettings, StageIds, build_stages


def labels_of(counts: list[int]) -> IntArray:
    """`counts[c]` labels of class c, in a scrambled order as in a real dataset."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.random.default_rng(1).permutation(labels)


def even(classes: int, each: int) -> IntArray:
    return labels_of([each] * classes)


def by_class(ids: IntArray, labels: IntArray) -> list[int]:
    return [int(n) for n in np.bincount(labels[ids], minlength=int(labels.max()) + 1)]


def of_class(ids: IntArray, labels: IntArray, label: int) -> set[int]:
    return set(ids[labels[ids] == label].tolist())


def build(train: IntArray, test: IntArray, **values: Any) -> tuple[StageIds, ...]:
    return build_stages(train, test, int(test.max()) + 1, ProtocolSettings(**values))


def same(left: StageIds, right: StageIds) -> bool:
    names = [field.name for field in fields(StageIds)]
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)
