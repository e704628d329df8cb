import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.data.images import ArrayImages, Dataset, DataSettings
from goal.data.sets import load_dataset

NAMES = ["apple", "bear", "cup"]


def table(count: int) -> dict[bytes, Any]:
    rng = np.random.default_rng(count)
    return {
        b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
        b"fine_labels": [index % 3 for index in range(count)],
        b"filenames": [b"x.png"] * count,
    }


def write(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(content, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-100-python"
    write(folder, "train", table(7))
    write(folder, "test", table(4))
    write(folder, "meta", {b"fine_label_names": [name.encode() for name in NAMES]})
    return folder


def load(root: Path) -> Dataset:
    return load_dataset(DataSettings(name="cifar100", root=str(root)))


def test_official_layout(folder: Path) -> None:
    dataset = load(folder.parent)
    assert dataset.name == "cifar100"
    assert dataset.class_names == tuple(NAMES)
    assert isinstance(dataset.train, ArrayImages)
    assert dataset.train.pixels.shape == (7, 32, 32, 3)
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert dataset.test.labels.tolist() == [0, 1, 2, 0]
    row = table(7)[b"data"][5]
    for channel, y, x in [(0, 0, 0), (1, 3, 17), (2, 31, 30)]:
        expected = row[channel * 1024 + y * 32 + x]
        assert dataset.train.pixels[5, y, x, channel] == expected
        assert dataset.train.image(5).getpixel((x, y))[channel] == expected  # type: ignore[index]


def test_the_folder_itself_as_root_and_text_keys(folder: Path) -> None:
    write(folder, "meta", {"fine_label_names": NAMES})
    write(folder, "train", {key.decode(): value for key, value in table(7).items()})
    assert load(folder).class_names == tuple(NAMES)
    assert len(load(folder).train.labels) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": np.zeros((7, 3071), np.uint8)}, "uint8 array with 3072 columns"),
        ({b"data": np.zeros((7, 3072), np.int64)}, "uint8 array with 3072 columns"),
        ({b"data": np.zeros(7, np.uint8)}, "uint8 array with 3072 columns"),
        ({b"data": [1, 2]}, "uint8 array with 3072 columns"),
        ({b"fine_labels": [0] * 6}, "7 images but 6 labels"),
        ({b"fine_labels": [0] * 6 + [3]}, r"labels run from 0 to 3.*names 3 classes \(0 to 2\)"),
        ({b"fine_labels": [0] * 6 + [-1]}, "labels run from -1 to 0"),
        ({b"fine_labels": ["0"] * 7}, "list of integers"),
        ({b"fine_labels": b"0000000"}, "list of integers"),
        ({b"data": np.zeros((0, 3072), np.uint8), b"fine_labels": []}, "0 images"),
    ],
)
def test_inconsistent_files(folder: Path, change: dict[bytes, Any], message: str) -> None:
    write(folder, "train", {**table(7), **change})
    with pytest.raises(GoalError, match=f"train.*{message}"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("meta", {b"x": []}, "no entry 'fine_label_names'"),
        ("meta", {b"fine_label_names": []}, "list of names"),
        ("meta", {b"fine_label_names": [1]}, "list of names"),
        ("meta", {b"fine_label_names": 5}, "list of names"),
        ("test", {b"data": []}, "no entry 'fine_labels'"),
        ("test", [1, 2], "should hold a dict, but holds a list"),
    ],
)
def test_wrong_files(folder: Path, name: str, content: Any, message: str) -> None:
    write(folder, name, content)
    with pytest.raises(GoalError, match=f"{name}.*{message}"):
        load(folder)


def test_a_hostile_file_is_refused(folder: Path) -> None:
    write(folder, "train", {b"data": print})
    with pytest.raises(GoalError, match=r"builtins\.print"):
        load(folder)
