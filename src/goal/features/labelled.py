"""Images or features as commands name them: what to learn with labels, and what without."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.collections import open_images
from goal.data.own_images import ImageSet, from_files
from goal.data.screening import Screened, screen_classes
from goal.features.given import is_features, read_features, read_labels


@dataclass(frozen=True)
class Labelled:
    """Images or features, the class of each by number, and the names of the classes."""

    images: ImageSet
    numbers: IntArray
    classes: list[str]


def open_labelled(place: Path, labels: Path | None, reporter: Reporter) -> Labelled:
    """Open a folder of class folders, or features that have labels."""
    if not is_features(place):
        if labels is not None:
            raise GoalError("--labels goes with features; folders of images are named by class.")
        return _class_folders(place, reporter)
    given = read_features(place)
    texts = given.labels if labels is None else read_labels(labels, len(given.images))
    if texts is None:
        raise GoalError(
            f"{file_name(place)} has no labels. Give them by --labels FILE, one per line; in a "
            ".npz or .parquet file as `labels`; or embed a folder with one folder per class."
        )
    classes, numbers = np.unique(np.array(texts), return_inverse=True)
    return Labelled(given.images, numbers.astype(np.int64), classes.tolist())


def open_given(places: Sequence[str], reporter: Reporter, download: bool = False) -> ImageSet:
    """Open images, or one set of features; the network is asked only with `download`."""
    features = [place for place in places if "://" not in place and is_features(Path(place))]
    if not features:
        return open_images(places, reporter, download)
    if len(places) > 1:
        raise GoalError("Give one set of features at a time, and no images beside it.")
    return read_features(Path(features[0])).images


def _class_folders(root: Path, reporter: Reporter) -> Labelled:
    classes = screen_classes(root, reporter)
    paths = [path for found in classes.values() for path in found.paths]
    skipped = [entry for found in classes.values() for entry in found.skipped]
    numbers = [number for number, found in enumerate(classes.values()) for _ in found.paths]
    given = from_files(Screened(paths, skipped), root)
    return Labelled(given, np.array(numbers, np.int64), list(classes))
