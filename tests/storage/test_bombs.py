"""Small files that ask for much memory or time are refused before they get it."""

import io
import shutil
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from goal.common.errors import GoalError
from goal.report.runs import load_run
from goal.storage import archives, checkpoint, yaml_files


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def test_arrays_come_back_as_numpy_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    given = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(["x", "yy"]), "c": np.zeros((0, 4))}
    np.savez(path, allow_pickle=False, **given)
    found = archives.read_arrays(path)
    with np.load(path) as plain:
        assert found.keys() == set(plain.files)
        for name in plain.files:
            np.testing.assert_array_equal(found[name], plain[name])
            assert found[name].dtype == plain[name].dtype
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(GoalError, match="is damaged"):
        archives.read_arrays(path)


def test_an_npz_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as out,
    ):
        for _ in range(600):
            out.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(GoalError, match="unpacks to 629,145,600 bytes"):
        archives.read_arrays(path)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    ],
)
def test_an_array_must_fit_its_bytes(tmp_path: Path, header: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", npy(header, b"12345678"))
    with pytest.raises(GoalError, match="is damaged"):
        archives.read_arrays(tmp_path / "a.npz")


def test_a_list_of_members_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"1")
    content = bytearray(path.read_bytes())
    content[-10:-6] = (1 << 31).to_bytes(4, "little")  # length of the list
    path.write_bytes(content)
    with pytest.raises(GoalError, match="more members"), archives.opened_zip(path):
        pass


def saved(path: Path, state: object) -> Path:
    torch.save({"format": 1, "digest": "", "state": state}, path)
    return path


def test_a_checkpoint_cannot_be_larger_than_it_is(tmp_path: Path) -> None:
    huge = torch.zeros(1).expand(1 << 40)
    with pytest.raises(GoalError, match="larger than its content"):
        checkpoint.load(saved(tmp_path / "a.pt", {"w": huge}))
    nested: list[object] = []
    for _ in range(40):
        nested = [nested, nested]
    with pytest.raises(GoalError, match="more than 1,000,000 values"):
        checkpoint.load(saved(tmp_path / "b.pt", nested))
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(saved(tmp_path / "c.pt", {"w": torch.zeros(1 << 20)})) as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
    (tmp_path / "c.pt").write_bytes(packed.getvalue())
    with pytest.raises(GoalError, match="unpacks to more than it is"):
        checkpoint.load(tmp_path / "c.pt")


def test_settings_of_runs_are_read_by_the_one_reader_of_yaml(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    run = Path(__file__).parent.parent / "fixtures" / "format-1" / "run"
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "settings.yaml").write_text("\n".join(lines))
    with pytest.raises(GoalError, match="aliases"):
        load_run(tmp_path / "run")
    with pytest.raises(GoalError, match="too long"):
        yaml_files.parse_yaml("a: " + "x" * yaml_files.MOST_CHARACTERS, "settings.yaml")
