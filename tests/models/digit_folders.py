"""Digits written out as folders of PNG files, and settings that learn them in a second or two."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import DataSettings
from goal.data.own_images import ImageSet, from_files
from goal.data.screening import screen_below
from goal.data.sets import load_dataset
from goal.models.model import Model
from goal.models.settings import model_settings
from goal.settings.settings import Settings

QUICK: dict[str, Any] = {
    "training": {"base_epochs": 3, "stage_epochs": 3, "checkpoint_seconds": 0.0},
    "bank": {"views": 2},
}


@cache
def digits() -> tuple[list[Image.Image], IntArray]:
    images = load_dataset(DataSettings()).train
    return [images.image(index) for index in range(len(images.labels))], images.labels


def write_digits(folder: Path, counts: dict[int, range], labelled: bool = False) -> Path:
    """Write the images of each class in a range of their order, as ``CLASS/`` or all in one."""
    images, labels = digits()
    for label, chosen in counts.items():
        members = np.flatnonzero(labels == label)[chosen.start : chosen.stop]
        for index in members.tolist():
            name = f"{label}-{index:04d}.png"
            path = folder / str(label) / name if labelled else folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # another time of change would make it another image
                images[index].save(path)
    return folder


def held(counts: dict[int, range]) -> tuple[list[Image.Image], list[int]]:
    """The same as images and labels in memory."""
    images, labels = digits()
    chosen = [
        (images[index], label)
        for label, part in counts.items()
        for index in np.flatnonzero(labels == label)[part.start : part.stop].tolist()
    ]
    return [image for image, _ in chosen], [label for _, label in chosen]


def screened(folder: Path) -> ImageSet:
    return from_files(screen_below(folder, Reporter()), folder)


def quick_settings(method: str = "kmeans", settings: dict[str, Any] = QUICK) -> Settings:
    return model_settings(method, "digits-vit", 0, settings=settings)


def fitted(
    folder: Path,
    data: Path,
    method: str = "kmeans",
    reporter: Reporter | None = None,
    settings: dict[str, Any] = QUICK,
) -> Model:
    """A model of the digits 0-3, ten images each."""
    given = screened(write_digits(data, dict.fromkeys(range(4), range(10)), labelled=True))
    labels = np.array([int(Path(name).parent.name) for name in given.names])
    model = Model(folder, reporter)
    model.fit(given, labels, [str(label) for label in range(4)], quick_settings(method, settings))
    return model
