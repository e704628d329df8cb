"""Features as people bring them: arrays in files, tables, stores."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from goal.common.errors import GoalError
from goal.features import given
from goal.features.given import (
    FeatureImages,
    Given,
    feature_set,
    is_features,
    known_features,
    read_features,
    read_labels,
)
from goal.features.origin import Origin
from goal.features.store import FeatureStore

VALUES = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
LABELS = ["cat", "cat", "dog", "dog", "dog", "cat"]


def behind(given: Given) -> FeatureImages:
    found = known_features(given.images.images)
    assert found is not None
    return found


def test_plain_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    found = read_features(tmp_path / "x.npy")
    assert np.array_equal(behind(found).features, VALUES) and found.labels is None
    assert found.images.names[:2] == ["row 0", "row 1"] and behind(found).origin.width == 4
    assert len(set(behind(found).digests)) == 6


def test_archives_with_labels_and_names(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(6)]
    np.savez(tmp_path / "x.npz", X=VALUES, y=np.array(LABELS), names=np.array(names))
    found = read_features(tmp_path / "x.npz")
    assert found.labels == LABELS and found.images.names == names
    np.savez(tmp_path / "y.npz", other=VALUES)
    with pytest.raises(GoalError, match=r"holds other; expected an array called"):
        read_features(tmp_path / "y.npz")


@pytest.mark.parametrize("fixed", [False, True])
def test_tables(tmp_path: Path, fixed: bool) -> None:
    kind = pyarrow.list_(pyarrow.float32(), 4) if fixed else pyarrow.list_(pyarrow.float32())
    column = pyarrow.array(VALUES.tolist(), kind)
    table = pyarrow.table({"embedding": column, "label": LABELS, "rest": list(range(6))})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    found = read_features(tmp_path / "x.parquet")
    assert np.array_equal(behind(found).features, VALUES) and found.labels == LABELS


def test_a_table_of_ragged_lists_is_refused(tmp_path: Path) -> None:
    ragged = pyarrow.table({"feature": [[1.0, 2.0], [3.0], [4.0, 5.0]]})
    pyarrow.parquet.write_table(ragged, tmp_path / "x.parquet")
    with pytest.raises(GoalError, match="equally many numbers"):
        read_features(tmp_path / "x.parquet")


def test_a_store_has_the_labels_of_its_class_folders(tmp_path: Path) -> None:
    origin = Origin(backbone="b", fingerprint="f", reads="CLS", width=4)
    store = FeatureStore.ready(tmp_path / "s", origin)
    names = ["set/cat/1.png", "set/cat/deep/2.png", "set/dog/3.png"]
    store.append(names, [bytes([n]) * 16 for n in range(3)], VALUES[:3])
    found = read_features(tmp_path / "s")
    assert found.labels == ["cat", "cat", "dog"] and behind(found).origin == origin
    assert is_features(tmp_path / "s") and not is_features(tmp_path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(5), "shape"),
        (np.zeros((0, 3)), "shape"),
        (np.array([["a"]]), "numbers"),
        (np.array([[1.0, np.nan]]), "row 0 holds a number that is not finite"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(bad: object, message: str) -> None:
    with pytest.raises(GoalError, match=message):
        feature_set(bad)


def test_pickles_and_damage_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(GoalError, match="Cannot read"):
        read_features(tmp_path / "x.npy")
    for name in ("y.npy", "y.npz", "y.parquet"):
        (tmp_path / name).write_bytes(b"\x93NUMPY nothing of the kind")
        with pytest.raises(GoalError, match=r"Cannot read|is damaged"):
            read_features(tmp_path / name)


def claiming(header: bytes) -> bytes:
    """An npy file whose header says what it likes, with four numbers after it."""
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(32)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 4)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -4)}",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (4,)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"[" * 3000,
        b"{'descr",
    ],
    ids=lambda header: header[40:70].decode(),
)
def test_headers_that_lie_are_refused_before_room_is_made(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(claiming(header))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", claiming(header))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(GoalError, match=r"header is damaged|does not fit"):
            read_features(tmp_path / name)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    packed = zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED)
    with packed as archive, archive.open("X.npy", "w") as stream:
        stream.write(b"\x93NUMPY\1\0" + bytes(2))
        for _ in range(600):
            stream.write(bytes(1 << 20))
    assert (tmp_path / "x.npz").stat().st_size < 1 << 20
    with pytest.raises(GoalError, match=r"unpacks to 629,.* bytes"):
        read_features(tmp_path / "x.npz")


def test_an_archive_of_the_long_form_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    np.savez_compressed(tmp_path / "x.npz", X=VALUES, y=np.array(LABELS), rest=VALUES)
    monkeypatch.undo()
    assert b"PK\6\7" in (tmp_path / "x.npz").read_bytes()
    assert np.array_equal(behind(read_features(tmp_path / "x.npz")).features, VALUES)


def test_odd_tables_are_refused(tmp_path: Path) -> None:
    floats = pyarrow.list_(pyarrow.float32())
    odd = {
        "empty": pyarrow.array([], floats),
        "as many in all": pyarrow.array([[1.0], [2.0, 3.0, 4.0]], floats),
        "missing": pyarrow.array([[1.0], None], floats),
        "texts": pyarrow.array([["a"], ["b"]]),
    }
    for name, column in odd.items():
        pyarrow.parquet.write_table(pyarrow.table({"X": column}), tmp_path / f"{name}.parquet")
        with pytest.raises(GoalError, match=r"equally many numbers|holds list"):
            read_features(tmp_path / f"{name}.parquet")
    twice = pyarrow.table([[[1.0]], [[1.0]]], names=["X", "X"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(GoalError, match="does not have one column X"):
        read_features(tmp_path / "twice.parquet")


def test_labels_are_one_for_each(tmp_path: Path) -> None:
    for name, array in (("none.npy", np.array(3)), ("pairs.npy", np.zeros((2, 2)))):
        np.save(tmp_path / name, array)
        with pytest.raises(GoalError, match="one per feature"):
            read_labels(tmp_path / name, 2)
    np.savez(tmp_path / "x.npz", X=VALUES, y=np.array(3))
    with pytest.raises(GoalError, match="one per feature"):
        read_features(tmp_path / "x.npz")


def test_pipes_and_devices_are_no_features(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.parquet")
    os.mkfifo(tmp_path / "labels.txt")
    (tmp_path / "x.npy").symlink_to("/dev/zero")
    assert not is_features(tmp_path / "x.parquet")
    with pytest.raises(GoalError, match="pipe or device"):
        read_labels(tmp_path / "labels.txt", 2)
    with pytest.raises(GoalError, match="There is no file"):
        read_features(tmp_path / "x.npy")


def test_names_cannot_steer_and_widths_are_bounded() -> None:
    names = feature_set(VALUES[:1], names=["a\x1b[2J"]).images.names
    assert names == ["a\\x1b[2J"]
    with pytest.raises(GoalError, match="more than 65,536"):
        feature_set(np.zeros((1, 70_000), np.float32))


def test_labels_beside_an_array(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    assert read_labels(tmp_path / "labels.txt", 2) == ["cat", "dog"]
    np.save(tmp_path / "labels.npy", np.array([3, 4, 5]))
    assert read_labels(tmp_path / "labels.npy", 3) == ["3", "4", "5"]
    with pytest.raises(GoalError, match="holds 2 labels for 3"):
        read_labels(tmp_path / "labels.txt", 3)


def test_equal_rows_have_equal_digests_and_no_others() -> None:
    digests = behind(feature_set(np.concatenate([VALUES, VALUES[:1]]))).digests
    assert digests[0] == digests[6] and len(set(digests)) == 6


def test_a_bad_row_is_named_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_ROWS", 4)
    values = VALUES.copy()
    values[5, 1] = np.inf
    with pytest.raises(GoalError, match="row 5 holds"):
        feature_set(values)
