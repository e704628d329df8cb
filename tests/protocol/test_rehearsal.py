"""Rehearsals see nothing but stage 0's labelled images."""

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.data.images import DataSettings
from goal.data.sets import load_dataset
from goal.protocol.rehearsal import rehearse
from goal.protocol.stages import ProtocolSettings, build_stages, class_order


def test_only_labelled_base_images_take_part() -> None:
    dataset = load_dataset(DataSettings())
    settings = ProtocolSettings(base_classes=4, stages=3, new_per_stage=1, rehearsal=2)
    cut, smaller = rehearse(dataset, settings)
    first = build_stages(dataset.train.labels, dataset.test.labels, 10, settings)[0]
    allowed = {dataset.train.digest(int(index)) for index in first.train_ids}
    train = {cut.train.digest(index) for index in range(len(cut.train.labels))}
    test = {cut.test.digest(index) for index in range(len(cut.test.labels))}
    assert train | test == allowed and not train & test
    assert (
        np.unique(cut.train.labels).tolist() == np.unique(cut.test.labels).tolist() == [0, 1, 2, 3]
    )
    order = class_order(10, settings)
    originals = {dataset.train.digest(int(index)): index for index in first.train_ids}
    for index in range(0, len(cut.train.labels), 7):
        label = dataset.train.labels[originals[cut.train.digest(index)]]
        assert order[cut.train.labels[index]] == label
    stages = build_stages(cut.train.labels, cut.test.labels, 4, smaller)
    assert [(stage.num_known, stage.num_new) for stage in stages] == [(0, 2), (2, 1), (3, 1)]


def test_too_many_stages_are_refused() -> None:
    with pytest.raises(GoalError, match=r"protocol\.rehearsal"):
        rehearse(load_dataset(DataSettings()), ProtocolSettings(rehearsal=2))
