"""Parquet files that would fill the memory are refused before they do."""

import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from goal.common.errors import GoalError
from goal.storage.tables import allowance, column_names, read_columns


def written(path: Path, **columns: object) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    return path


def test_columns_come_back_whatever_they_hold(tmp_path: Path) -> None:
    columns = {
        "text": ["a", None, "a"],
        "large": pyarrow.array(["x", "y", "z"], pyarrow.large_string()),
        "bytes": pyarrow.array([b"12", b"34", b"56"], pyarrow.binary(2)),
        "number": [1, 2, 3],
        "list": pyarrow.array([[1.0, 2.0]] * 3, pyarrow.list_(pyarrow.float16(), 2)),
    }
    path = written(tmp_path / "x.parquet", **columns)
    assert column_names(path) == list(columns)
    found = read_columns(path, ["number", "text", "large", "bytes", "list"])
    assert list(found) == ["number", "text", "large", "bytes", "list"]
    assert {name: found[name].to_pylist() for name in columns} == {
        "text": ["a", None, "a"],
        "large": ["x", "y", "z"],
        "bytes": [b"12", b"34", b"56"],
        "number": [1, 2, 3],
        "list": [[1.0, 2.0]] * 3,
    }


def test_a_text_repeated_into_the_sky_is_refused(tmp_path: Path) -> None:
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(np.zeros(10_000, np.int32)), pyarrow.array(["x" * 1_000_000])
    )
    path = written(tmp_path / "x.parquet", file=texts)
    assert path.stat().st_size < 100_000
    with pytest.raises(GoalError, match=r"unpacks to 10,0.* bytes or more"):
        read_columns(path, ["file"])


def test_rows_out_of_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    zeros = pyarrow.table({"number": np.zeros(8_000_000, np.int64)})
    with pyarrow.parquet.ParquetWriter(path, zeros.schema, compression="zstd") as writer:
        for _ in range(9):
            writer.write_table(zeros)
    assert path.stat().st_size < 1_000_000 and allowance(path.stat().st_size) < 9 * zeros.nbytes
    with pytest.raises(GoalError, match="unpacks to"):
        read_columns(path, ["number"])


def test_texts_in_lists_are_not_measured_and_so_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", nested=[["a"], ["b"]], pair=[{"a": 1}, {"a": 2}])
    for name in ("nested", "pair"):
        with pytest.raises(GoalError, match=f"the column {name} holds"):
            read_columns(path, [name])


def test_what_is_no_table_is_explained(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", a=[1])
    with pytest.raises(GoalError, match="does not have one column b"):
        read_columns(path, ["b"])
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:-9])
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "link.parquet").symlink_to("/dev/zero")
    for name, why in (("cut", "Cannot read"), ("pipe", "pipe or device"), ("link", "leads out")):
        with pytest.raises(GoalError, match=why):
            read_columns(tmp_path / f"{name}.parquet", ["a"])
