from pathlib import Path

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.data.images import Dataset, DataSettings
from goal.data.sets import load_dataset
from goal.data.sets.imagenet100 import choose, happy_indices
from tests.data.helpers import listing, readable, write_image, write_text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        for wnid in ("n1", "n2", "n3"):
            write_image(tmp_path / "imagenet" / split / wnid / f"{split}_{wnid}.JPEG")
    return tmp_path


def load(root: Path, class_list: str) -> Dataset:
    return load_dataset(DataSettings(name="imagenet100", root=str(root), class_list=class_list))


def test_happy_list_begins_as_published() -> None:
    indices = happy_indices()
    assert indices[:10] == [1, 14, 27, 31, 45, 55, 77, 103, 108, 141]
    assert len(set(indices)) == 100
    assert indices == sorted(indices)
    assert max(indices) < 1000


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()  # noqa: NPY002
    try:
        np.random.seed(5)  # noqa: NPY002
        expected = np.random.random()  # noqa: NPY002
        np.random.seed(5)  # noqa: NPY002
        assert happy_indices()[:2] == [1, 14]
        assert np.random.random() == expected  # noqa: NPY002
    finally:
        np.random.set_state(before)  # noqa: NPY002


def test_happy_list_picks_among_all_folders(tmp_path: Path) -> None:
    wnids = [f"n{number:04}" for number in range(1000)]
    for wnid in wnids:
        (tmp_path / "train" / wnid).mkdir(parents=True)
    for index in happy_indices():
        (tmp_path / "train" / wnids[index] / "a.JPEG").touch()
        (tmp_path / "val" / wnids[index]).mkdir(parents=True)
        (tmp_path / "val" / wnids[index] / "b.JPEG").touch()
    dataset = load(tmp_path, "happy")
    assert dataset.name == "imagenet100"
    assert dataset.class_names == tuple(wnids[index] for index in happy_indices())
    assert listing(dataset.train) == [("a.JPEG", label) for label in range(100)]
    assert listing(dataset.test) == [("b.JPEG", label) for label in range(100)]


def test_happy_list_needs_every_class(root: Path) -> None:
    with pytest.raises(GoalError, match=r"all 1000 class folders.*holds 3.*path as class_list"):
        load(root, "happy")


def test_classes_from_a_file_sorted(root: Path) -> None:
    wanted = write_text(root / "list.txt", "n3", "", " n1 ")
    dataset = load(root, str(wanted))
    assert dataset.class_names == ("n1", "n3")
    assert listing(dataset.train) == [("train_n1.JPEG", 0), ("train_n3.JPEG", 1)]
    assert listing(dataset.test) == [("val_n1.JPEG", 0), ("val_n3.JPEG", 1)]
    assert readable(dataset)
    assert listing(load(root / "imagenet", str(wanted)).test) == listing(dataset.test)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["n1", "n7", "n8"], r"train lacks the class folder n7 \(2 of 3 are missing\)"),
        (["n1", "n1"], "'n1' more than once"),
        ([], "is empty"),
    ],
)
def test_wrong_files_of_classes(root: Path, lines: list[str], message: str) -> None:
    wanted = write_text(root / "list.txt", *lines)
    with pytest.raises(GoalError, match=message):
        load(root, str(wanted))


def test_val_images_that_are_not_sorted_into_folders(root: Path) -> None:
    wanted = write_text(root / "list.txt", "n1", "n2")
    (root / "imagenet" / "val" / "n2").rename(root / "elsewhere")
    with pytest.raises(GoalError, match=r"val lacks the class folder n2.*one folder per wnid"):
        load(root, str(wanted))


def test_neither_happy_nor_a_file() -> None:
    with pytest.raises(GoalError, match="'hapy', which is neither 'happy' nor a file"):
        choose(["n1"], "hapy")
