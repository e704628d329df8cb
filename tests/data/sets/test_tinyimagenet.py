from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.data.images import Dataset, DataSettings
from goal.data.sets import load_dataset
from tests.data.helpers import listing, readable, write_image, write_text

WNIDS = ["n03", "n01", "n02"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-imagenet-200"
    write_text(folder / "wnids.txt", *WNIDS)
    write_text(folder / "words.txt", "n01\tfish, swimmer", "n02\tcrane", "n03\tcrane", "n9\tother")
    for wnid in WNIDS:
        for index in (1, 0):
            write_image(folder / "train" / wnid / "images" / f"{wnid}_{index}.JPEG")
        write_text(folder / "train" / wnid / f"{wnid}_boxes.txt", "0 0 0 0")
    for index in range(3):
        write_image(folder / "val" / "images" / f"val_{index}.JPEG")
    annotate(
        folder, "val_0.JPEG\tn03\t0\t0\t9\t9", "val_1.JPEG\tn01\t0\t0\t9\t9", "val_2.JPEG\tn03"
    )
    return folder


def annotate(folder: Path, *lines: str) -> None:
    write_text(folder / "val" / "val_annotations.txt", *lines)


def load(root: Path) -> Dataset:
    return load_dataset(DataSettings(name="tinyimagenet", root=str(root)))


def test_official_layout(folder: Path) -> None:
    dataset = load(folder.parent)
    assert dataset.name == "tinyimagenet"
    assert dataset.class_names == ("fish", "crane (n02)", "crane (n03)")
    assert listing(dataset.train) == [
        (f"n0{label + 1}_{index}.JPEG", label) for label in range(3) for index in range(2)
    ]
    assert sorted(listing(dataset.test)) == [
        ("val_0.JPEG", 2),
        ("val_1.JPEG", 0),
        ("val_2.JPEG", 2),
    ]
    assert readable(dataset)
    assert listing(load(folder).train) == listing(dataset.train)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_0.JPEG\tn77", "'val_0.JPEG' has the unknown class 'n77'"),
        ("val_0.JPEG", "unknown class ''"),
        ("val_9.JPEG\tn01", "lists 'val_9.JPEG', which .* lacks"),
        ("../x.JPEG\tn01", "lacks"),
        ("val_0.JPEG\tn01\nval_0.JPEG\tn01", "'val_0.JPEG' more than once"),
    ],
)
def test_wrong_annotations(folder: Path, line: str, message: str) -> None:
    annotate(folder, line)
    with pytest.raises(GoalError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("wnids", "message"),
    [([], "lists no classes"), (["n01", "n01"], "'n01' more than once"), (["n04"], "n04")],
)
def test_wrong_class_lists(folder: Path, wnids: list[str], message: str) -> None:
    write_text(folder / "wnids.txt", *wnids)
    with pytest.raises(GoalError, match=message):
        load(folder)


def test_a_class_without_images(folder: Path) -> None:
    for path in (folder / "train" / "n02" / "images").iterdir():
        path.unlink()
    with pytest.raises(GoalError, match=r"n02.images holds no images"):
        load(folder)
