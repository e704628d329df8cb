"""Datasets: one file each, and the list of them all."""

from goal.data import cifar100, cub, digits, folder, imagenet100, tinyimagenet
from goal.data.base import Dataset, DatasetSpec, DataSettings
from goal.errors import pick
from goal.progress import Reporter

DATASETS: dict[str, DatasetSpec] = {
    "digits": digits.SPEC,
    "cifar100": cifar100.SPEC,
    "tinyimagenet": tinyimagenet.SPEC,
    "imagenet100": imagenet100.SPEC,
    "cub": cub.SPEC,
    "folder": folder.SPEC,
}


def load_dataset(settings: DataSettings, reporter: Reporter | None = None) -> Dataset:
    """Load the dataset that the settings name."""
    return pick(DATASETS, settings.name, "dataset").load(settings, reporter or Reporter())
