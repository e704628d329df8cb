from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from goal.data.images import ArrayImages, DataSettings, position_in_class
from goal.data.sets import load_dataset


def sides() -> tuple[ArrayImages, ArrayImages]:
    dataset = load_dataset(DataSettings(name="digits"))
    assert dataset.name == "digits"
    assert dataset.class_names == tuple("0123456789")
    assert isinstance(dataset.train, ArrayImages)
    assert isinstance(dataset.test, ArrayImages)
    return dataset.train, dataset.test


def test_every_fifth_image_of_each_class_is_for_testing() -> None:
    train, test = sides()
    bunch = load_digits()
    seen = dict.fromkeys(range(10), 0)
    expected_train: list[tuple[Any, int]] = []
    expected_test: list[tuple[Any, int]] = []
    for image, label in zip(bunch.images, bunch.target, strict=True):
        seen[int(label)] += 1
        (expected_test if seen[int(label)] % 5 == 0 else expected_train).append((image, label))
    for side, expected in ((train, expected_train), (test, expected_test)):
        assert side.labels.tolist() == [int(label) for _, label in expected]
        exact = np.stack([image for image, _ in expected]) * 255 / 16
        assert np.abs(side.pixels[..., 0] - exact).max() <= 0.5
    assert len(train.labels) + len(test.labels) == 1797
    shares = np.bincount(test.labels) / np.bincount(bunch.target)
    assert np.all((shares > 0.19) & (shares <= 0.2))


def test_pixels_are_grey_rgb_over_the_whole_range() -> None:
    train, _ = sides()
    assert train.pixels.dtype == np.uint8
    assert train.pixels.shape[1:] == (8, 8, 3)
    assert (train.pixels.min(), train.pixels.max()) == (0, 255)
    assert (train.pixels == train.pixels[..., :1]).all()
    assert train.labels.dtype == np.int64
    assert train.image(0).size == (8, 8)


def test_positions_in_class() -> None:
    labels = np.array([3, 1, 3, 3, 1], np.int64)
    assert position_in_class(labels).tolist() == [0, 0, 1, 2, 1]
