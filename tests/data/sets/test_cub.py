from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.data.images import Dataset, DataSettings
from goal.data.sets import load_dataset
from tests.data.helpers import listing, readable, write_image, write_text

IMAGES = ["001.Auk/a.jpg", "001.Auk/b.jpg", "002.Wren/c.jpg", "002.Wren/d.jpg"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "CUB_200_2011"
    for name in IMAGES:
        write_image(folder / "images" / name)
    write_text(folder / "classes.txt", "1 001.Auk", "2 002.Wren")
    write_text(folder / "images.txt", *[f"{i} {name}" for i, name in enumerate(IMAGES, 1)])
    write_text(folder / "image_class_labels.txt", "1 1", "2 1", "4 2", "3 2")
    write_text(folder / "train_test_split.txt", "1 0", "2 1", "3 1", "4 0")
    return folder


def load(root: Path) -> Dataset:
    return load_dataset(DataSettings(name="cub", root=str(root)))


def test_official_layout(folder: Path) -> None:
    dataset = load(folder.parent)
    assert dataset.name == "cub"
    assert dataset.class_names == ("001.Auk", "002.Wren")
    assert listing(dataset.train) == [("b.jpg", 0), ("c.jpg", 1)]
    assert listing(dataset.test) == [("a.jpg", 0), ("d.jpg", 1)]
    assert readable(dataset)
    assert listing(load(folder).test) == listing(dataset.test)


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("classes.txt", ["1 a", "3 b"], "should number the classes 1, 2, 3"),
        ("classes.txt", ["0 a", "1 b"], "should number the classes 1, 2, 3"),
        ("classes.txt", ["1"], "'1' should be a number, a blank and a value"),
        ("classes.txt", ["one a"], "should be a number"),
        ("classes.txt", ["1 a", "1 b"], "lists the number 1 more than once"),
        ("images.txt", [], "is empty"),
        ("images.txt", ["1 x.jpg", "2 x.jpg", "3 x.jpg", "4 x.jpg"], "x.jpg, which is missing"),
        ("image_class_labels.txt", ["1 1", "2 1", "3 2"], "same images: see number 4"),
        ("image_class_labels.txt", ["1 1", "2 1", "3 2", "4 3"], "image 4 .*'3', expected 1 to 2"),
        ("image_class_labels.txt", ["1 1", "2 1", "3 2", "4 0"], "image 4 .*'0', expected 1 to 2"),
        ("train_test_split.txt", ["1 1", "2 1", "3 0", "4 yes"], "'yes', expected 0 to 1"),
        ("train_test_split.txt", ["1 1", "2 1", "3 0", "5 1"], "same images: see number 4"),
    ],
)
def test_wrong_lists(folder: Path, name: str, lines: list[str], message: str) -> None:
    write_text(folder / name, *lines)
    with pytest.raises(GoalError, match=f"{name}.*{message}"):
        load(folder)
