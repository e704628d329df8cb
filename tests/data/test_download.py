"""Downloads: https only, verified, unpacked safely, all or nothing."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import Request

import pytest

from goal.common.errors import GoalError
from goal.common.progress import Item, Reporter
from goal.data.download import HttpsRedirects, fetch, open_url, unpack, verify

URL = "https://example.org/data.tar.gz"


def tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def special_tar(kind: bytes, name: str = "data/link") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    return buffer.getvalue()


def link_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("data/link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def serve(content: bytes) -> Callable[[str], IO[bytes]]:
    return lambda url: io.BytesIO(content)


def md5(content: bytes) -> str:
    return "md5:" + hashlib.md5(content).hexdigest()


def unpacked(tmp_path: Path, content: bytes, **options: Any) -> Path:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    unpack(archive, tmp_path / "out", **options)
    return tmp_path / "out"


GOOD = {"data/a.txt": b"one", "data/sub/b.txt": b"two", "other.txt": b"three"}
GOOD_TAR = tar(GOOD)


class Counting(Reporter):
    """Keeps what passes through it."""

    received: Any = b""

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        for item in items:
            self.received += item
            yield item


@pytest.mark.parametrize("pack", [tar, zipped])
def test_the_wanted_folder_arrives_whole_and_alone(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    content = pack(GOOD)
    reporter = Counting()
    root = tmp_path / "new" / "root"
    found = fetch(
        URL,
        md5(content),
        root,
        "data",
        opener=serve(content),
        reporter=reporter,
    )
    assert found == root / "data"
    assert (found / "a.txt").read_bytes() == b"one"
    assert (found / "sub" / "b.txt").read_bytes() == b"two"
    assert [path.name for path in root.iterdir()] == ["data"]
    assert reporter.received == content


def test_sha256_is_known_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    verify(path, f"sha256:{digest.upper()}", "here")
    with pytest.raises(GoalError, match=f"from here has the sha256 {digest}, not"):
        verify(path, "sha256:" + "0" * 64, "here")
    with pytest.raises(GoalError, match="Unknown checksum 'crc:1'"):
        verify(path, "crc:1", "here")


@pytest.mark.parametrize("url", ["http://example.org/x.zip", "file:///etc/passwd", "ftp://x/y"])
def test_only_https(tmp_path: Path, url: str) -> None:
    def never(url: str) -> IO[bytes]:
        pytest.fail("opened")

    with pytest.raises(GoalError, match="only https"):
        fetch(url, "md5:0", tmp_path, "data", opener=never)
    assert list(tmp_path.iterdir()) == []


def redirected(to: str) -> Request | None:
    handler, empty = HttpsRedirects(), HTTPMessage()
    return handler.redirect_request(Request(URL), io.BytesIO(), 302, "Found", empty, to)


def test_redirections_stay_on_https() -> None:
    request = redirected("https://mirror.example.org/x")
    assert request is not None
    assert request.full_url == "https://mirror.example.org/x"
    with pytest.raises(GoalError, match="only https"):
        redirected("http://mirror.example.org/x")


def test_the_real_opener_guards_redirections(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []

    class Stub:
        def open(self, url: str, timeout: float) -> IO[bytes]:
            assert timeout > 0
            return io.BytesIO(url.encode())

    def build(*handlers: object) -> Stub:
        used.extend(handlers)
        return Stub()

    monkeypatch.setattr("goal.data.download.build_opener", build)
    with open_url(URL) as response:
        assert response.read() == URL.encode()
    assert used == [HttpsRedirects]


@pytest.mark.parametrize(
    ("content", "checksum", "message"),
    [
        (GOOD_TAR, "md5:" + "0" * 32, "not the published 0000"),
        (GOOD_TAR[:80], None, "Cannot unpack"),
        (b"no archive", None, "Cannot unpack"),
        (tar({"else/a": b""}), None, "no folder 'data'"),
        (tar({"data/a": b"", "data/../../x": b"evil"}), None, "leads out"),
        (tar({"data/a": bytes(3_000_000)}), None, "more bytes than allowed"),
    ],
    ids=["checksum", "truncated", "garbage", "other folder", "traversal", "bomb"],
)
def test_failures_leave_nothing_behind(
    tmp_path: Path, content: bytes, checksum: str | None, message: str
) -> None:
    root = tmp_path / "root"
    with pytest.raises(GoalError, match=message):
        fetch(
            URL, checksum or md5(content), root, "data", opener=serve(content), max_bytes=2_000_000
        )
    assert list(root.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize("error", [URLError("no route"), HTTPException("half"), OSError("full")])
def test_network_errors_are_explained(tmp_path: Path, error: Exception) -> None:
    def broken(url: str) -> IO[bytes]:
        raise error

    with pytest.raises(GoalError, match=f"Cannot download {URL} to "):
        fetch(URL, "md5:0", tmp_path, "data", opener=broken)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_without_end_is_cut(tmp_path: Path) -> None:
    sent: list[int] = []

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sent.append(1 << 16)
            return bytes(1 << 16)

    with pytest.raises(GoalError, match="sends more than 1000000 bytes"):
        fetch(URL, "md5:0", tmp_path, "data", opener=lambda url: Endless(), max_bytes=1_000_000)
    assert list(tmp_path.iterdir()) == []
    assert 1_000_000 < sum(sent) <= 1_000_000 + (1 << 16)


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").touch()
    with pytest.raises(GoalError, match="exists already"):
        fetch(URL, md5(GOOD_TAR), tmp_path, "data", opener=serve(GOOD_TAR))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]


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
