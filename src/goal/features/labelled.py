"""Images or features as commands name them: what to learn with labels, and what without."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.progress import Reporter
from goal.data.collections import open_images
from goal.data.own_images import ImageSet, from_files
from goal.data.screening import Screened, screen, screen_classes
from goal.features.given import is_features, read_features, read_labels
from goal.storage.files import read_bytes

_FILES = ("file", "path")
_CLASSES = ("class", "label")


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


def open_few(place: Path, labels: Path | None, reporter: Reporter) -> Labelled:
    """Open a few labelled images: as for `open_labelled`, or a list with a class for each."""
    if place.suffix.lower() != ".csv" or not place.is_file():
        return open_labelled(place, labels, reporter)
    if labels is not None:
        raise GoalError("--labels goes with features; a .csv file has a column of classes.")
    listed = _rows(place)
    found = screen([place.parent / name for name, _ in listed], reporter)
    wanted = {place.parent / name: label for name, label in listed}
    texts = [wanted[path] for path in found.paths]
    classes, numbers = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    return Labelled(from_files(found, place.parent), numbers.astype(np.int64), classes.tolist())


def _rows(place: Path) -> list[tuple[str, str]]:
    """File and class of each row of a list."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(place, given=True).decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise GoalError(f"Cannot read {file_name(place)}: {error}.") from error
    columns = list(rows[0]) if rows else []
    file = next((name for name in _FILES if name in columns), None)
    label = next((name for name in _CLASSES if name in columns), None)
    if file is None or label is None:
        raise GoalError(
            f"{file_name(place)} has the columns {', '.join(map(visible, map(str, columns)))}; "
            f"expected {' or '.join(_FILES)}, and {' or '.join(_CLASSES)}."
        )
    found = [(row[file], row[label]) for row in rows if row[file]]
    without = [name for name, text in found if not (text or "").strip()]
    if without:
        raise GoalError(f"{file_name(place)} gives no class for {visible(without[0])}.")
    return found


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
