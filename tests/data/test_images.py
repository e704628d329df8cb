from pathlib import Path

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.data.images import ArrayImages, DataSettings, FileImages
from goal.data.sets import DATASETS, load_dataset
from tests.data.helpers import write_image

PROTOCOL = {  # base classes, stages, unlabelled per new / base / discovered class
    "digits": (4, 3, 100, 15, 15),
    "cifar100": (50, 5, 400, 25, 25),
    "tinyimagenet": (100, 5, 400, 25, 25),
    "imagenet100": (50, 5, 1000, 60, 60),
    "cub": (100, 5, 25, 5, 5),
}


@pytest.mark.parametrize("name", sorted(PROTOCOL))
def test_defaults_are_the_table_of_the_protocol(name: str) -> None:
    base, stages, new, old, discovered = PROTOCOL[name]
    expected: dict[str, int | str] = {
        "base_classes": base,
        "stages": stages,
        "unlabelled_new": new,
        "unlabelled_base": old,
        "unlabelled_discovered": discovered,
    }
    if name == "cub":
        expected |= {"base_list": "cub-ssb"}
    assert DATASETS[name].defaults["protocol"] == expected


def test_every_dataset_has_a_summary_and_folder_no_defaults() -> None:
    assert set(DATASETS.shipped) == {*PROTOCOL, "folder"}
    assert all(len(spec.summary) > 10 for spec in DATASETS.values())
    assert DATASETS["folder"].defaults == {}


def test_an_unknown_dataset_names_the_nearest() -> None:
    with pytest.raises(GoalError, match="Did you mean 'cifar100'"):
        load_dataset(DataSettings(name="cifar10O"))


def test_array_digest_depends_on_content_and_shape_only() -> None:
    pixels = np.zeros((3, 2, 3, 3), np.uint8)
    pixels[2, 0, 0, 0] = 1
    images = ArrayImages(pixels, np.zeros(3, np.int64))
    turned = ArrayImages(pixels.reshape(3, 3, 2, 3), np.zeros(3, np.int64))
    assert images.digest(0) == images.digest(1)
    assert len({images.digest(0), images.digest(2), turned.digest(0)}) == 3
    assert len(images.digest(0)) == 16


def test_file_digest_changes_with_the_file(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png")
    images = FileImages([path], np.zeros(1, np.int64))
    before = images.digest(0)
    assert images.digest(0) == before
    path.write_bytes(path.read_bytes() + b"x")
    assert images.digest(0) != before


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png", side=64)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(GoalError, match=r"a\.png"):
        FileImages([path], np.zeros(1, np.int64)).image(0)
