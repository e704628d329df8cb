"""Datasets: one file each, and the list of them all.

A package of one's own adds datasets by entry points of the group ``goal.datasets``, each of which
names a `DatasetSpec`; see docs/plugins.md.
"""

from goal.common.errors import pick
from goal.common.plugins import Registry
from goal.common.progress import Reporter
from goal.data.images import Dataset, DatasetSpec, DataSettings
from goal.data.sets import cifar100, cub, digits, folder, imagenet100, tinyimagenet

DATASETS: Registry[DatasetSpec] = Registry(
    "goal.datasets",
    DatasetSpec,
    {
        "digits": digits.SPEC,
        "cifar100": cifar100.SPEC,
        "tinyimagenet": tinyimagenet.SPEC,
        "imagenet100": imagenet100.SPEC,
        "cub": cub.SPEC,
        "folder": folder.SPEC,
    },
)


def load_dataset(settings: DataSettings, reporter: Reporter | None = None) -> Dataset:
    """Load the dataset that the settings name."""
    return pick(DATASETS, settings.name, "dataset").load(settings, reporter or Reporter())
