"""Archives are unpacked inside their folder, bounded, and as plain files."""

import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.data import fetching
from goal.data.fetching import unpack
from tests.data.archives import link_zip, special_tar, tar, zipped


def unpacked(tmp_path: Path, content: bytes, **options: Any) -> Path:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    unpack(archive, tmp_path / "out", **options)
    return tmp_path / "out"


@pytest.mark.parametrize("pack", [tar, zipped])
@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x", "a\\..\\..\\x", "C:/x"])
def test_names_that_lead_out_are_refused(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes], name: str
) -> None:
    with pytest.raises(GoalError, match="leads out of its folder"):
        unpacked(tmp_path, pack({name: b"evil"}))
    assert {path.name for path in tmp_path.rglob("*")} == {"archive", "out"}


@pytest.mark.parametrize(
    "content",
    [
        special_tar(tarfile.SYMTYPE),
        special_tar(tarfile.LNKTYPE),
        special_tar(tarfile.FIFOTYPE),
        special_tar(tarfile.CHRTYPE),
        link_zip(),
    ],
    ids=["symbolic", "hard", "fifo", "device", "zip"],
)
def test_links_and_devices_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(GoalError, match="'data/link', a link or device"):
        unpacked(tmp_path, content)
    assert list((tmp_path / "out").rglob("*")) == []


@pytest.mark.parametrize("pack", [tar, zipped])
def test_the_size_is_bounded_over_all_files(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    content = pack({f"file{i}": bytes(1000) for i in range(4)})
    out = unpacked(tmp_path, content, max_bytes=4000)
    assert len(list(out.iterdir())) == 4
    with pytest.raises(GoalError, match="more bytes than allowed"):
        unpacked(tmp_path, content, max_bytes=3999)


def test_folders_and_dots_in_names_are_fine(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("./data/empty")
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    assert (unpacked(tmp_path, buffer.getvalue()) / "data" / "empty").is_dir()
    assert (unpacked(tmp_path, zipped({"zip/": b""})) / "zip").is_dir()


def test_a_damaged_zip(tmp_path: Path) -> None:
    content = bytearray(zipped({"data/a": bytes(range(256)) * 8}))
    content[45] ^= 0xFF
    with pytest.raises(GoalError, match="Cannot unpack archive"):
        unpacked(tmp_path, bytes(content))


def test_a_zip_gives_no_more_than_its_header_says(tmp_path: Path) -> None:
    content = bytearray(zipped({"data/a": bytes(1_000_000)}))
    place = content.index(b"PK\x01\x02") + 24
    content[place : place + 4] = (10).to_bytes(4, "little")
    with pytest.raises(GoalError, match="Cannot unpack archive"):
        unpacked(tmp_path, bytes(content), max_bytes=10)
    assert (tmp_path / "out" / "data" / "a").stat().st_size <= 10


def test_a_tar_with_a_negative_size(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        info = tarfile.TarInfo("data/a")
        info.size = -1000
        archive.addfile(info)
    with pytest.raises(GoalError, match="Cannot unpack archive"):
        unpacked(tmp_path, buffer.getvalue())


@pytest.mark.parametrize("pack", [tar, zipped])
def test_the_number_of_files_is_bounded(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = pack({f"file{i}": b"" for i in range(4)})
    monkeypatch.setattr(fetching, "MAX_FILES", 4)
    assert len(list(unpacked(tmp_path, content).iterdir())) == 4
    monkeypatch.setattr(fetching, "MAX_FILES", 3)
    with pytest.raises(GoalError, match="more than 3 files"):
        unpacked(tmp_path, content)


def test_unpacked_files_have_plain_rights(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("tool")
        info.mode = 0o6777
        archive.addfile(info)
    path = unpacked(tmp_path, buffer.getvalue()) / "tool"
    assert path.stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_bounded_before_they_are_read(tmp_path: Path, kind: int) -> None:
    def packed(length: int) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", format=kind) as archive:
            name = "/".join(["d" * 99] * (length // 100))
            archive.addfile(tarfile.TarInfo(name))
            archive.addfile(tarfile.TarInfo("after"))
        return buffer.getvalue()

    bomb = packed(200_000_000)
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    with pytest.raises(GoalError, match="a name or header of more than 1,048,576 bytes"):
        unpacked(tmp_path, bomb)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert (unpacked(tmp_path, packed(300)) / "after").exists()
