"""What every dataset promises."""

from pathlib import Path

import numpy as np

from goal.common.errors import pick
from goal.common.progress import Reporter
from goal.data.images import DIGEST_BYTES, Dataset, DataSettings, Images
from goal.data.sets import DATASETS
from goal.protocol.stages import build_stages
from goal.settings.settings import compose
from goal.testing.teaching import expect


def check_dataset(name: str, root: str | Path = "data", most: int = 200) -> None:
    """Hold a dataset to every promise.

    Args:
        name: The dataset's name in `goal list datasets`.
        root: Folder that holds the datasets.
        most: Images of each set that are decoded, evenly spread; digests are taken of all.

    Raises:
        AssertionError: If a promise is broken; the text says which.
        GoalError: If there is no such dataset, or it cannot be loaded.
    """
    spec = pick(DATASETS, name, "dataset")
    settings = DataSettings(name=name, root=str(root))
    first, second = (spec.load(settings, Reporter()) for _ in range(2))
    _check_names(first, name)
    digests = []
    for part in ("train", "test"):
        images, again = getattr(first, part), getattr(second, part)
        _check_labels(images, again, len(first.class_names), part)
        digests.append(_check_digests(images, again, part))
        _check_pictures(images, most, part)
    shared = len(digests[0] & digests[1])
    expect(not shared, f"{shared} digests of test images are those of training images")
    _check_defaults(first, settings)


def _check_names(data: Dataset, name: str) -> None:
    names = data.class_names
    expect(data.name == name, f"the dataset '{name}' calls itself '{data.name}'")
    expect(len(names) > 0, "there are no class names")
    expect(all(isinstance(n, str) and n.strip() for n in names), "a class name is empty")
    expect(len(set(names)) == len(names), "two classes have the same name")


def _check_labels(images: Images, again: Images, classes: int, part: str) -> None:
    labels = images.labels
    expect(
        isinstance(labels, np.ndarray) and labels.dtype == np.int64 and labels.ndim == 1,
        f"{part}: labels must be an array of int64, (N,)",
    )
    expect(len(labels) > 0, f"{part}: there is no image")
    expect(
        labels.min() >= 0 and labels.max() < classes,
        f"{part}: labels run from {labels.min()} to {labels.max()}, but {classes} classes have "
        "names, from 0",
    )
    if part == "train":
        lacking = sorted(set(range(classes)) - set(labels.tolist()))
        expect(not lacking, f"{part}: class {lacking[:1]} has no image")
    expect(
        np.array_equal(labels, again.labels),
        f"{part}: loaded twice, the images come with other labels or in another order",
    )


def _check_digests(images: Images, again: Images, part: str) -> set[bytes]:
    """Digests are stable, and two different images never share one; return them all."""
    seen: dict[bytes, int] = {}
    for index in range(len(images.labels)):
        digest = images.digest(index)
        expect(
            isinstance(digest, bytes) and len(digest) == DIGEST_BYTES,
            f"{part}: the digest of image {index} is not {DIGEST_BYTES} bytes",
        )
        expect(
            digest == images.digest(index) == again.digest(index),
            f"{part}: the digest of image {index} changes from one time to the next",
        )
        other = seen.setdefault(digest, index)
        expect(
            other == index or images.image(other).tobytes() == images.image(index).tobytes(),
            f"{part}: images {other} and {index} differ, but have the same digest",
        )
    return set(seen)


def _check_pictures(images: Images, most: int, part: str) -> None:
    count = len(images.labels)
    for index in np.unique(np.linspace(0, count - 1, min(most, count)).astype(int)).tolist():
        picture = images.image(index)
        expect(picture.mode == "RGB", f"{part}: image {index} is {picture.mode}, not RGB")
        expect(
            picture.tobytes() == images.image(index).tobytes(),
            f"{part}: image {index} is another one when it is read again",
        )


def _check_defaults(data: Dataset, settings: DataSettings) -> None:
    """The defaults are settings that exist, and the protocol in them fits the images."""
    protocol = compose({"data": settings.model_dump(), "method": {"name": "kmeans"}}).protocol
    build_stages(data.train.labels, data.test.labels, len(data.class_names), protocol)
