"""Stages of the benchmarks have the published sizes and composition."""

from collections.abc import Sequence

import numpy as np
import pytest

from goal.data.sets import DATASETS
from goal.protocol.stages import ProtocolSettings, StageIds, class_order
from goal.settings.recipes import shipped_recipe
from tests.protocol import cub_counts
from tests.protocol.helpers import build, by_class, even, labels_of, same

# Base classes, images per new class, images per base or discovered class, train and test labels.
# ImageNet-100 has about 1274 a class, of which 80% are 1019.2. CUB's counts are the real ones.
DATA = {
    "cifar100": (50, 400, 25, even(100, 500), even(100, 100)),
    "tinyimagenet": (100, 400, 25, even(200, 500), even(200, 50)),
    "imagenet100": (50, 1000, 60, even(100, 1274), even(100, 50)),
    "cub": (100, 25, 5, labels_of(cub_counts.TRAIN), labels_of(cub_counts.TEST)),
}
# Labelled images, unlabelled images of stage 1 (new classes + base classes), how many more each
# further stage has (one more set of discovered classes), and the test images of every stage.
CUB_LABELLED = 97 * 24 + 3 * 23  # floor(0.8 * 30), and floor(0.8 * 29) of three base classes
CUB_5 = (2884, 3479, 4050, 4625, 5210, 5794)
CUB_10 = (2884, 3182, 3479, 3762, 4050, 4332, 4625, 4913, 5210, 5507, 5794)
SIZES = [
    ("cifar100", 5, 50 * 400, 10 * 400 + 50 * 25, 10 * 25, range(5000, 10_001, 1000)),
    ("cifar100", 10, 50 * 400, 5 * 400 + 50 * 25, 5 * 25, range(5000, 10_001, 500)),
    ("tinyimagenet", 5, 100 * 400, 20 * 400 + 100 * 25, 20 * 25, range(5000, 10_001, 1000)),
    ("tinyimagenet", 10, 100 * 400, 10 * 400 + 100 * 25, 10 * 25, range(5000, 10_001, 500)),
    ("imagenet100", 5, 50 * 1019, 10 * 1000 + 50 * 60, 10 * 60, range(2500, 5001, 500)),
    ("imagenet100", 10, 50 * 1019, 5 * 1000 + 50 * 60, 5 * 60, range(2500, 5001, 250)),
    ("cub", 5, CUB_LABELLED, 20 * 25 + 100 * 5, 20 * 5, CUB_5),
    ("cub", 10, CUB_LABELLED, 10 * 25 + 100 * 5, 10 * 5, CUB_10),
]


def published(name: str, stages: int) -> tuple[StageIds, ...]:
    base, new, few, train, test = DATA[name]
    quotas = {"unlabelled_new": new, "unlabelled_base": few, "unlabelled_discovered": few}
    base_list = DATASETS[name].defaults["protocol"].get("base_list")
    return build(train, test, base_classes=base, stages=stages, base_list=base_list, **quotas)


@pytest.mark.parametrize(("name", "stages", "labelled", "first", "more", "tested"), SIZES)
def test_benchmark_sizes(
    name: str, stages: int, labelled: int, first: int, more: int, tested: Sequence[int]
) -> None:
    built = published(name, stages)
    unlabelled = [first + more * i for i in range(stages)]
    assert [len(stage.train_ids) for stage in built] == [labelled, *unlabelled]
    assert [len(stage.test_ids) for stage in built] == list(tested)
    assert [stage.index for stage in built] == list(range(stages + 1))
    base, new = DATA[name][0], DATA[name][0] // stages
    assert [stage.num_new for stage in built] == [base] + [new] * stages
    assert [stage.num_known for stage in built] == [0, *range(base, 2 * base, new)]
    assert built[-1].num_seen == 2 * base


def test_composition_of_a_stage() -> None:
    """CIFAR-100, stage 2: 25 of each base and discovered class, 400 of each new one, no others."""
    train = DATA["cifar100"][3]
    counts = np.array(by_class(published("cifar100", 5)[2].train_ids, train))
    order = class_order(100, ProtocolSettings(base_classes=50, stages=5))
    assert counts[order].tolist() == [25] * 60 + [400] * 10 + [0] * 30
    assert same(published("cifar100", 5)[0], published("cifar100", 10)[0])  # whatever T is


def test_cub_is_the_official_split_in_the_published_order() -> None:
    """Totals of CUB's own page; the novel order is that of Happy's published log."""
    assert (sum(cub_counts.TRAIN), sum(cub_counts.TEST)) == (5994, 5794)
    assert len(cub_counts.TRAIN) == len(cub_counts.TEST) == 200
    protocol = ProtocolSettings(**DATASETS["cub"].defaults["protocol"])
    order = class_order(200, protocol)
    assert order[100:106].tolist() == [52, 170, 3, 109, 148, 185]
    assert order[:6].tolist() == [0, 5, 7, 9, 11, 12] and order[99] == 199
    assert shipped_recipe("cub", "happy")["protocol"] == DATASETS["cub"].defaults["protocol"]


def test_defaults_fit_the_digits() -> None:
    """Ten classes of 143: floor(114.4) labelled, 29 left over; then 2 new classes a stage."""
    stages = build(even(10, 143), even(10, 36))
    new = 2 * 143
    sizes = [4 * 114, 4 * 10 + new, 4 * 10 + 2 * 10 + new, 4 * 10 + 4 * 10 + new]
    assert [len(stage.train_ids) for stage in stages] == sizes
