"""Settings and labels that do not fit are refused with their names."""

import numpy as np
import pytest

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.protocol.stages import ProtocolSettings, build_stages, class_order
from tests.protocol.helpers import build, even, labels_of


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_classes": 11}, "base_classes is 11, but the dataset has 10"),
        ({"stages": 4}, "6 novel classes .* over 4 stages. Set new_per_stage"),
        ({"base_classes": 10}, "0 novel classes"),
        ({"new_per_stage": 3}, "need 9 novel classes, but only 6"),
    ],
)
def test_settings_that_do_not_fit_the_dataset(values: dict[str, int], message: str) -> None:
    with pytest.raises(GoalError, match=message):
        build(even(10, 10), even(10, 2), **values)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (labels_of([5] * 9 + [0]), even(10, 2), "No training images for class 9"),
        (even(10, 5), labels_of([2, 0] + [2] * 8), "No test images for class 1"),
        (even(11, 5), even(10, 2), "training labels run from 0 to 10"),
        (even(10, 5), even(10, 2) - 1, "test labels run from -1 to 8"),
        (even(10, 5).astype(np.float64), even(10, 2), "float64"),
        (even(10, 5).reshape(2, 25), even(10, 2), r"shape \(2, 25\)"),
        (even(10, 1), even(10, 2), "Base class 0 would get no labelled image"),
    ],
)
def test_labels_that_do_not_fit(train: IntArray, test: IntArray, message: str) -> None:
    with pytest.raises(GoalError, match=message):
        build_stages(train, test, 10, ProtocolSettings())


def test_a_class_no_stage_uses_may_be_empty() -> None:
    protocol = ProtocolSettings(stages=2, new_per_stage=2)
    unused = set(range(10)) - set(class_order(10, protocol).tolist())
    train = labels_of([0 if label in unused else 5 for label in range(10)])
    assert len(build_stages(train, even(10, 2), 10, protocol)) == 3


ZERO = ("base_classes", "new_per_stage", "unlabelled_new", "train_per_class", "test_per_class")
BELOW = ("stages", "unlabelled_base", "unlabelled_discovered", "sampling_seed", "class_order_seed")
OTHER = (("labelled_fraction", 0.0), ("labelled_fraction", 1.5), ("class_order_seed", 2**32))
BAD = (*((key, 0) for key in ZERO), *((key, -1) for key in BELOW), *OTHER, ("stage", 5))


@pytest.mark.parametrize(("key", "value"), BAD)
def test_settings_out_of_range(key: str, value: float) -> None:
    with pytest.raises(GoalError, match=f"- {key}: "):
        ProtocolSettings.parse({key: value})
