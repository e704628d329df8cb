"""Handwritten digits: 1797 grey images of 8 x 8 pixels that come with scikit-learn."""

import numpy as np

from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import ArrayImages, Dataset, DatasetSpec, DataSettings, position_in_class

TEST_EVERY = 5
WHITE = 16


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """Return the digits; every fifth image of each class is a test image."""
    from sklearn.datasets import load_digits  # slow to import, and only this dataset needs it

    bunch = load_digits()
    grey = np.rint(bunch.images * (255 / WHITE)).astype(np.uint8)
    pixels = np.repeat(grey[..., None], 3, axis=-1)
    labels: IntArray = bunch.target.astype(np.int64)
    test = position_in_class(labels) % TEST_EVERY == TEST_EVERY - 1
    return Dataset(
        name="digits",
        class_names=tuple(str(name) for name in bunch.target_names),
        train=ArrayImages(pixels[~test], labels[~test]),
        test=ArrayImages(pixels[test], labels[test]),
    )


SPEC = DatasetSpec(
    summary="Handwritten digits, 10 classes, 8 x 8 pixels; nothing to download",
    load=load,
    defaults={
        "protocol": {
            "base_classes": 4,
            "stages": 3,
            "unlabelled_new": 100,
            "unlabelled_base": 15,
            "unlabelled_discovered": 15,
        },
        "transform": {"image_size": 16, "resize": 18, "flip": False},
        "backbone": {"name": "digits-vit"},
        "threads": 1,
    },
)
