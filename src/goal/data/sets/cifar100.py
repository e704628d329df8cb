"""CIFAR-100: 60,000 colour images of 32 x 32 pixels in 100 classes (fine labels)."""

from pathlib import Path
from typing import Any

import numpy as np

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.fetching import Source, locate
from goal.data.images import ArrayImages, Dataset, DatasetSpec, DataSettings
from goal.data.unpickle import load_arrays

SIDE = 32
ROW = 3 * SIDE * SIDE

SOURCE = Source(
    title="CIFAR-100 (python version)",
    folder="cifar-100-python",
    files=("train", "test", "meta"),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
)


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """Read the official files into memory."""
    folder = locate(SOURCE, settings, reporter)
    names = _read(folder / "meta", "fine_label_names")["fine_label_names"]
    if not isinstance(names, list) or not names or not all(map(_is_text, names)):
        raise GoalError(f"{folder / 'meta'}: fine_label_names should be a list of names.")
    class_names = tuple(n if isinstance(n, str) else n.decode("utf-8", "replace") for n in names)
    return Dataset(
        name="cifar100",
        class_names=class_names,
        train=_images(folder / "train", len(class_names)),
        test=_images(folder / "test", len(class_names)),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str | bytes)


def _read(path: Path, *keys: str) -> dict[str, Any]:
    """Return the entries `keys` of the file; Python 2 and 3 spell them as bytes and as text."""
    table = load_arrays(path)
    if not isinstance(table, dict):
        raise GoalError(f"{path} should hold a dict, but holds a {type(table).__name__}.")
    entries = {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): value
        for key, value in table.items()
    }
    for key in keys:
        if key not in entries:
            raise GoalError(f"{path} has no entry '{key}': is it a file of CIFAR-100?")
    return entries


def _images(path: Path, classes: int) -> ArrayImages:
    entries = _read(path, "data", "fine_labels")
    data, labels = entries["data"], entries["fine_labels"]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (ROW,):
        raise GoalError(f"{path}: data should be a uint8 array with {ROW} columns.")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise GoalError(f"{path}: fine_labels should be a list of integers.")
    if len(labels) != len(data) or not labels:
        raise GoalError(f"{path} holds {len(data)} images but {len(labels)} labels.")
    if min(labels) < 0 or max(labels) >= classes:
        raise GoalError(
            f"{path}: labels run from {min(labels)} to {max(labels)}, but meta names "
            f"{classes} classes (0 to {classes - 1})."
        )
    pixels = data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(pixels), np.array(labels, dtype=np.int64))


SPEC = DatasetSpec(
    summary="CIFAR-100, 100 classes, 32 x 32 pixels, 500 training images each",
    load=load,
    defaults={
        "protocol": {
            "base_classes": 50,
            "stages": 5,
            "unlabelled_new": 400,
            "unlabelled_base": 25,
            "unlabelled_discovered": 25,
        }
    },
)
