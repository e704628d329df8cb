"""Lists, tar shards, datasets and addresses, as strangers may make them."""

import io
import os
import socket
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data import collections
from goal.data.collections import open_images
from goal.data.decoding import UnreadableImage
from goal.data.own_images import ImageSet


def encoded(kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), 7, np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def opened(place: object, **options: bool) -> ImageSet:
    return open_images([str(place)], Reporter(), **options)


def tar(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            (about := tarfile.TarInfo(name)).size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return path


def test_images_of_a_tar_shard_are_read_in_place(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", ("a.png", encoded()), ("b.txt", b"x"), ("c.png", b"broken"))
    given = opened(path)
    assert given.names == [f"{path}/a.png", f"{path}/c.png"]
    assert given.images.image(0).size == (5, 4)
    with pytest.raises(UnreadableImage, match=r"x\.tar/c\.png"):
        given.images.image(1)


def test_a_tar_name_of_many_bytes_is_refused(tmp_path: Path) -> None:
    """Such a name is read at once: 3 GB of it were 3 GB of memory."""
    about = tarfile.TarInfo("././@LongLink")
    about.type, about.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    path = tmp_path / "x.tar"
    path.write_bytes(about.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, 1 << 31)  # takes no room
    with pytest.raises(GoalError, match="name or header of more than"):
        opened(path)


def test_a_tar_member_of_negative_size_is_refused(tmp_path: Path) -> None:
    about = tarfile.TarInfo("a.png")
    content = bytearray(about.tobuf(tarfile.GNU_FORMAT))
    content[124:136] = b"\xff" * 11 + b"\xf0"  # -16, base 256
    content[148:156] = b" " * 8
    content[148:156] = f"{sum(content):06o}\0 ".encode()
    (tmp_path / "x.tar").write_bytes(bytes(content) + bytes(1024))
    with pytest.raises(GoalError, match=r"negative size|tar file"):
        opened(tmp_path / "x.tar")


def test_a_vast_member_is_not_read(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", ("a.png", b""))
    content = bytearray(path.read_bytes())
    content[124:136] = f"{2 << 30:011o}\0".encode()
    content[148:156] = b" " * 8
    content[148:156] = f"{sum(content[:512]):06o}\0 ".encode()
    path.write_bytes(content)
    os.truncate(path, 4 << 30)  # takes no room
    with pytest.raises(UnreadableImage, match="larger than 1,000,000,000 bytes"):
        opened(path).images.image(0)


def test_large_members_are_held_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    amounts: list[int] = []
    holding = collections._READING.holding

    def noted(amount: int) -> Any:
        amounts.append(amount)
        return holding(amount)

    monkeypatch.setattr(collections._READING, "holding", noted)
    content = encoded()
    images = opened(tar(tmp_path / "x.tar", ("a.png", content))).images
    images.image(0)
    images.digest(0)
    assert amounts == [len(content)] * 2


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".parquet"])
def test_a_list_that_is_a_pipe_is_not_waited_for(suffix: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"x{suffix}")
    given = opened(tmp_path / f"x{suffix}")
    assert not given.names and [why for _, why in given.skipped] == ["not a regular file"]


def test_a_list_names_what_it_likes_and_only_images_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded())
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "x.txt").write_text("a.png\n/dev/zero\npipe.png\n/etc/hostname\nnul\0name\n")
    given = opened(tmp_path / "x.txt")
    assert given.names == [str(tmp_path / "a.png")]
    reasons = [reason for _, reason in given.skipped]
    assert reasons[:2] == ["not a regular file"] * 2 and len(reasons) == 4


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/x", "https://example.org/x.png", "zip://x::https://example.org/x.zip", "://x"],
)
@pytest.mark.usefixtures("no_network")
def test_an_address_on_the_network_is_asked_only_by_flag(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GoalError, match="give --download"):
        opened(address)
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda _: pytest.fail("not asked"))
    with pytest.raises(GoalError, match="give --download"):
        opened(address)
    with pytest.raises(pytest.fail.Exception, match="not asked"):
        opened(address, download=True)


def test_an_address_in_memory_needs_no_flag() -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/trust/a.png", encoded())
    system.pipe("/trust/b.txt", b"no image")
    given = opened("memory://trust")
    assert given.names == ["/trust/a.png"] and given.images.image(0).size == (5, 4)


class Column:
    """Stands for the library's image type."""

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


def fake_datasets(entries: list[dict[str, Any]]) -> SimpleNamespace:
    """The part of the library that is used."""

    class Found:
        def __init__(self) -> None:
            self.features = {"image": Column()}

        def __len__(self) -> int:
            return len(entries)

        def cast_column(self, name: str, kind: Column) -> dict[str, list[dict[str, Any]]]:
            assert not kind.decode, "the library would decode any format and fetch addresses"
            return {name: entries}

    return SimpleNamespace(Image=Column, load_from_disk=lambda _: Found())


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ImageSet]:
    def make(*entries: dict[str, Any]) -> ImageSet:
        for name in ("dataset_info.json", "state.json"):
            (tmp_path / name).write_text("{}")
        monkeypatch.setitem(sys.modules, "datasets", fake_datasets(list(entries)))
        return opened(tmp_path)

    return make


@pytest.mark.usefixtures("no_network")
def test_images_of_a_dataset_are_decoded_here(
    dataset: Callable[..., ImageSet], tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(encoded())
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    given = dataset(
        {"bytes": encoded(), "path": None},
        {"bytes": None, "path": str(tmp_path / "a.png")},
        {"bytes": postscript, "path": "cat.png"},
        {"bytes": None, "path": "https://example.org/a.png"},
        {"bytes": None, "path": "zip://a::https://example.org/a.zip"},
        {"bytes": None, "path": None},
    )
    assert [given.images.image(at).size for at in (0, 1)] == [(5, 4)] * 2
    for at, why in ((2, "none of the image formats"), (3, "not on this"), (4, "not on this")):
        with pytest.raises(UnreadableImage, match=why):
            given.images.image(at)
    with pytest.raises(UnreadableImage, match="not on this machine"):
        given.images.image(5)


def test_a_broken_dataset_is_explained(
    dataset: Callable[..., ImageSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset()

    def broken(_: str) -> None:
        raise KeyError("_data_files")

    monkeypatch.setattr(sys.modules["datasets"], "load_from_disk", broken)
    with pytest.raises(GoalError, match="Cannot read the dataset"):
        opened(tmp_path)
