from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal.common.errors import GoalError
from goal.data.images import Dataset, DataSettings
from goal.data.sets import load_dataset
from goal.data.sets.folder import split
from tests.data.helpers import listing, readable, write_image

NAMES = st.sets(st.text("abcdefgh0123456789", min_size=1, max_size=6), min_size=1, max_size=30)
FRACTIONS = st.floats(0.01, 0.99)


def load(root: Path, test_fraction: float = 0.2) -> Dataset:
    return load_dataset(DataSettings(name="folder", root=str(root), test_fraction=test_fraction))


def files(names: set[str]) -> list[Path]:
    return [Path("cats", f"{name}.jpg") for name in sorted(names)]


def test_classes_are_sorted_and_only_images_count(tmp_path: Path) -> None:
    for name in ("dog/1.JPG", "dog/2.jpeg", "ant/1.png", "ant/2.Png", "ant/.hidden.png"):
        write_image(tmp_path / name)
    write_image(tmp_path / ".cache" / "x.png")
    (tmp_path / "ant" / "notes.txt").touch()
    (tmp_path / "ant" / "folder.png").mkdir()
    (tmp_path / "README").touch()
    dataset = load(tmp_path)
    assert dataset.name == "folder"
    assert dataset.class_names == ("ant", "dog")
    assert sorted(listing(dataset.train) + listing(dataset.test)) == [
        ("1.JPG", 1),
        ("1.png", 0),
        ("2.Png", 0),
        ("2.jpeg", 1),
    ]
    assert sorted(dataset.train.labels) == sorted(dataset.test.labels) == [0, 1]
    assert readable(dataset)


def test_a_split_that_is_given_is_kept(tmp_path: Path) -> None:
    for name in ("train/b/1.jpg", "train/a/2.jpg", "train/c/3.jpg", "test/c/4.jpg", "test/b/5.jpg"):
        write_image(tmp_path / name)
    dataset = load(tmp_path)
    assert dataset.class_names == ("a", "b", "c")
    assert listing(dataset.train) == [("2.jpg", 0), ("1.jpg", 1), ("3.jpg", 2)]
    assert listing(dataset.test) == [("5.jpg", 1), ("4.jpg", 2)]


def test_the_split_does_not_depend_on_where_the_folder_is(tmp_path: Path) -> None:
    for place in ("here", "there"):
        for index in range(20):
            write_image(tmp_path / place / "a" / f"{index}.jpg")
    here, there = load(tmp_path / "here"), load(tmp_path / "there")
    assert listing(here.train) == listing(there.train)
    assert listing(here.test) == listing(there.test)


def test_the_fraction_is_about_right() -> None:
    many = files({str(index) for index in range(5000)})
    for fraction in (0.1, 0.2, 0.5):
        assert abs(len(split(many, fraction)[1]) / 5000 - fraction) < 0.02


@given(NAMES, FRACTIONS)
def test_both_sides_get_images(names: set[str], fraction: float) -> None:
    train, test = split(files(names), fraction)
    assert sorted(train + test) == files(names)
    assert train
    assert bool(test) == (len(names) > 1)


@given(NAMES, NAMES, FRACTIONS)
def test_new_files_do_not_move_the_others(
    names: set[str], newcomers: set[str], fraction: float
) -> None:
    """At most one file, put on the empty side for want of another, may go back."""
    before, after = split(files(names), fraction), split(files(names | newcomers), fraction)
    moved_to_train = set(before[1]) & set(after[0])
    moved_to_test = set(before[0]) & set(after[1])
    assert len(moved_to_train) <= (len(before[1]) == 1)
    assert len(moved_to_test) <= (len(before[0]) == 1)


def test_files_stay_when_both_sides_are_well_filled() -> None:
    old = {str(index) for index in range(100)}
    before = split(files(old), 0.2)
    assert min(map(len, before)) > 1
    after = split(files(old | {f"new{index}" for index in range(100)}), 0.2)
    assert set(before[0]) <= set(after[0])
    assert set(before[1]) <= set(after[1])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5])
def test_fractions_out_of_range(fraction: float) -> None:
    with pytest.raises(GoalError, match="test_fraction"):
        DataSettings.parse({"name": "folder", "test_fraction": fraction})


def test_no_root(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match=r"no folder .*nowhere.*one folder of images per class"):
        load(tmp_path / "nowhere")


def test_no_classes(tmp_path: Path) -> None:
    write_image(tmp_path / "1.jpg")
    with pytest.raises(GoalError, match="holds no class folders"):
        load(tmp_path)


def test_an_empty_class(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "1.jpg")
    (tmp_path / "b").mkdir()
    with pytest.raises(GoalError, match=r"b holds no images \(\.jpg"):
        load(tmp_path)


def test_a_test_class_that_train_lacks(tmp_path: Path) -> None:
    for name in ("train/a/1.jpg", "test/b/1.jpg"):
        write_image(tmp_path / name)
    with pytest.raises(GoalError, match=r"the class 'b', which .*train lacks"):
        load(tmp_path)


@pytest.mark.parametrize("side", ["train", "test"])
def test_an_empty_class_of_a_given_split(tmp_path: Path, side: str) -> None:
    for name in ("train/a/1.jpg", "train/b/1.jpg", "test/a/1.jpg", "test/b/1.jpg"):
        write_image(tmp_path / name)
    (tmp_path / side / "b" / "1.jpg").unlink()
    with pytest.raises(GoalError, match=f"{side}.b holds no images"):
        load(tmp_path)
