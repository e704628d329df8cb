"""Datasets: directions when one is missing; downloads verified, unpacked safely, all or nothing."""

import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError

import pytest
import requests
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from goal.common.errors import GoalError
from goal.common.progress import Item, Reporter
from goal.data import fetching
from goal.data.fetching import Source, fetch, locate
from goal.data.images import DataSettings
from goal.data.sets import cifar100, cub, imagenet100, load_dataset, tinyimagenet
from tests.data.archives import tar, zipped
from tests.data.helpers import write_text

URL = "https://example.org/data.tar.gz"

Answer = bytes | IO[bytes] | Exception | Callable[[], IO[bytes]]


@dataclass
class Web:
    """Stands in for the network, below the libraries that do the downloading."""

    content: Answer = b""
    redirections: dict[str, str] = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def answer(self, adapter: HTTPAdapter, request: PreparedRequest, **given: Any) -> Response:
        assert given["timeout"] > 0 and given["verify"] and given["stream"] is True
        assert request.url is not None
        self.asked.append(request.url)
        if isinstance(self.content, Exception):
            raise self.content
        status, headers = self.status, dict(self.headers)
        if request.url in self.redirections:
            status, headers["location"] = 302, self.redirections[request.url]
        content = self.content() if callable(self.content) else self.content
        body = io.BytesIO(content) if isinstance(content, bytes) else content
        raw = HTTPResponse(body, headers, status, preload_content=False, request_method="GET")
        return adapter.build_response(request, raw)


@pytest.fixture(autouse=True)
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    found = Web()

    def send(adapter: HTTPAdapter, request: PreparedRequest, **given: Any) -> Response:
        return found.answer(adapter, request, **given)

    monkeypatch.setattr(HTTPAdapter, "send", send)
    return found


def left(folder: Path) -> list[str]:
    """What is in a folder beside the lock, which stays for the next process."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def md5(content: bytes) -> str:
    return "md5:" + hashlib.md5(content).hexdigest()


GOOD = {"data/a.txt": b"one", "data/sub/b.txt": b"two", "other.txt": b"three"}
GOOD_TAR = tar(GOOD)


class Counting(Reporter):
    """Keeps what passes through it."""

    received: Any = b""

    def __init__(self) -> None:
        self.tracked: list[tuple[str, int | None, int]] = []

    def track(self, items: Iterable[Item], total: int | None, task: str) -> Iterator[Item]:
        count = 0
        for item in items:
            self.received += item
            count += 1
            yield item
        self.tracked.append((task, total, count))


ARCHIVES = [cifar100.SOURCE, tinyimagenet.SOURCE, cub.SOURCE]
CONTENT = tar({"toy/one": b"1", "toy/two": b"2"})
TOY = Source("Toy", "toy", ("one", "two"), "https://example.org/toy.tgz", md5(CONTENT))


@pytest.mark.parametrize("name", ["cifar100", "tinyimagenet", "cub", "imagenet100"])
def test_directions_for_missing_data(tmp_path: Path, name: str) -> None:
    source: Source = {
        "cifar100": cifar100.SOURCE,
        "tinyimagenet": tinyimagenet.SOURCE,
        "cub": cub.SOURCE,
        "imagenet100": imagenet100.SOURCE,
    }[name]
    with pytest.raises(GoalError) as caught:
        load_dataset(DataSettings(name=name, root=str(tmp_path)))
    text = str(caught.value)
    assert f"{tmp_path / source.folder / source.files[0]} is missing" in text
    assert source.url in text
    assert str(tmp_path / source.folder) in text
    assert all(file in text for file in source.files)
    wanted = "--download cannot fetch it" if name == "imagenet100" else "add --download"
    assert wanted in text


@pytest.mark.parametrize("source", ARCHIVES, ids=lambda source: source.folder)
def test_public_archives_are_https_with_a_checksum(source: Source) -> None:
    kind, _, digest = source.checksum.partition(":")
    assert source.url.startswith("https://")
    assert kind == "md5"
    assert len(bytes.fromhex(digest)) == 16


def test_imagenet_cannot_be_downloaded(tmp_path: Path) -> None:
    settings = DataSettings(name="imagenet100", root=str(tmp_path), download=True)
    with pytest.raises(GoalError, match="account, so --download cannot fetch it"):
        load_dataset(settings)


def test_download_happens_once_and_only_when_asked(tmp_path: Path, web: Web) -> None:
    web.content = CONTENT
    root = tmp_path / "root"
    with pytest.raises(GoalError, match="add --download"):
        locate(TOY, DataSettings(root=str(root)), Reporter())
    assert web.asked == []
    wanted = DataSettings(root=str(root), download=True)
    assert locate(TOY, wanted, Reporter()) == root / "toy"
    assert locate(TOY, wanted, Reporter()) == root / "toy"
    assert web.asked == [TOY.url]
    assert (root / "toy" / "two").read_bytes() == b"2"


def test_the_root_may_be_the_folder_itself(tmp_path: Path) -> None:
    write_text(tmp_path / "toy" / "one")
    write_text(tmp_path / "toy" / "two")
    assert locate(TOY, DataSettings(root=str(tmp_path / "toy")), Reporter()) == tmp_path / "toy"


def test_the_missing_file_is_told_where_most_of_the_data_is(tmp_path: Path) -> None:
    write_text(tmp_path / "one")
    with pytest.raises(GoalError, match=f"{tmp_path / 'two'} is missing"):
        locate(TOY, DataSettings(root=str(tmp_path)), Reporter())


def test_an_incomplete_folder_is_not_overwritten(tmp_path: Path) -> None:
    write_text(tmp_path / "toy" / "one", "mine")
    with pytest.raises(GoalError, match=f"two is missing.*Move {tmp_path / 'toy'} away"):
        locate(TOY, DataSettings(root=str(tmp_path), download=True), Reporter())
    assert (tmp_path / "toy" / "one").read_text() == "mine\n"


def test_an_archive_without_the_promised_files(tmp_path: Path, web: Web) -> None:
    content = web.content = tar({"toy/one": b"1"})
    source = Source("Toy", "toy", ("one", "two"), TOY.url, md5(content))
    settings = DataSettings(root=str(tmp_path), download=True)
    with pytest.raises(GoalError, match="two is missing"):
        locate(source, settings, Reporter())


@pytest.mark.parametrize("pack", [tar, zipped])
def test_the_wanted_folder_arrives_whole_and_alone(
    tmp_path: Path,
    pack: Callable[[dict[str, bytes]], bytes],
    web: Web,
    capfd: pytest.CaptureFixture[str],
) -> None:
    content = web.content = pack(GOOD)
    reporter = Counting()
    root = tmp_path / "new" / "root"
    found = fetch(URL, md5(content), root, "data", reporter=reporter)
    assert found == root / "data"
    assert (found / "a.txt").read_bytes() == b"one"
    assert (found / "sub" / "b.txt").read_bytes() == b"two"
    assert left(root) == ["data"]
    assert reporter.received == content
    assert capfd.readouterr() == ("", ""), "only the reporter speaks"


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_progress_is_told_in_chunks(tmp_path: Path, web: Web, chunks: int) -> None:
    content = bytes(chunks * fetching.CHUNK_BYTES + 1)
    web.content, web.headers = content, {"content-length": str(len(content))}
    reporter = Counting()
    with pytest.raises(GoalError, match="Cannot unpack"):
        fetch(URL, md5(content), tmp_path, "data", reporter=reporter)
    assert reporter.received == content
    assert reporter.tracked == [(f"Downloading {URL} (MiB)", chunks + 1, chunks + 1)]


def test_sha256_is_known_too(tmp_path: Path, web: Web) -> None:
    web.content = GOOD_TAR
    digest = hashlib.sha256(GOOD_TAR).hexdigest()
    fetch(URL, f"sha256:{digest.upper()}", tmp_path / "good", "data")
    message = f"Refused what came from {URL}: .*expected sha256:{'0' * 64} but got {digest}"
    with pytest.raises(GoalError, match=message):
        fetch(URL, "sha256:" + "0" * 64, tmp_path / "bad", "data")
    assert left(tmp_path / "bad") == []
    asked = len(web.asked)
    for checksum in ("crc:1", "", digest):
        with pytest.raises(GoalError, match=f"Unknown checksum '{checksum}'"):
            fetch(URL, checksum, tmp_path / "bad", "data")
    assert len(web.asked) == asked


@pytest.mark.parametrize("url", ["http://example.org/x.zip", "file:///etc/passwd", "ftp://x/y"])
def test_only_https(tmp_path: Path, url: str, web: Web) -> None:
    with pytest.raises(GoalError, match="only https"):
        fetch(url, "md5:0", tmp_path, "data")
    assert list(tmp_path.iterdir()) == []
    assert web.asked == []


MIRROR = "https://mirror.example.org/x"


def test_redirections_are_followed(tmp_path: Path, web: Web) -> None:
    web.content = GOOD_TAR
    web.redirections = {URL: MIRROR, MIRROR: "/y"}
    reporter = Counting()
    fetch(URL, md5(GOOD_TAR), tmp_path, "data", reporter=reporter)
    assert web.asked == [URL, MIRROR, "https://mirror.example.org/y"]
    assert reporter.tracked == [(f"Downloading {URL} (MiB)", None, 1)]


@pytest.mark.parametrize("to", ["http://example.org/x", "HTTP://example.org/x", "ftp://x/y"])
def test_redirections_stay_on_https(tmp_path: Path, to: str, web: Web) -> None:
    web.content = GOOD_TAR
    web.redirections = {URL: MIRROR, MIRROR: to}
    with pytest.raises(GoalError, match=f"Refused to download {to}: only https"):
        fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert web.asked == [URL, MIRROR], "refused before it was opened"
    assert left(tmp_path) == []


def test_what_is_packed_arrives_as_it_was_published(tmp_path: Path, web: Web) -> None:
    """Some servers would pass compression in transit off as the file's own."""
    web.content = GOOD_TAR
    seen: list[str] = []
    answer = web.answer

    def answered(adapter: HTTPAdapter, request: PreparedRequest, **given: Any) -> Response:
        seen.append(str(request.headers["Accept-Encoding"]))
        return answer(adapter, request, **given)

    web.answer = answered  # type: ignore[method-assign]
    fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert seen == ["identity"]


@pytest.mark.parametrize(
    ("content", "checksum", "message"),
    [
        (GOOD_TAR, "md5:" + "0" * 32, "expected md5:0000.* Not being what was published"),
        (GOOD_TAR[:80], None, "Cannot unpack"),
        (b"no archive", None, "Cannot unpack"),
        (tar({"else/a": b""}), None, "no folder 'data'"),
        (tar({"data/a": b"", "data/../../x": b"evil"}), None, "leads out"),
        (tar({"data/a": bytes(3_000_000)}), None, "more bytes than allowed"),
    ],
    ids=["checksum", "truncated", "garbage", "other folder", "traversal", "bomb"],
)
def test_failures_leave_nothing_behind(
    tmp_path: Path, content: bytes, checksum: str | None, message: str, web: Web
) -> None:
    web.content = content
    root = tmp_path / "root"
    with pytest.raises(GoalError, match=message):
        fetch(URL, checksum or md5(content), root, "data", max_bytes=2_000_000)
    assert left(root) == []
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


ERRORS = [
    *(URLError("no route"), HTTPException("half"), OSError("full")),
    *(requests.ConnectionError("refused"), requests.Timeout("late")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_network_errors_are_explained(tmp_path: Path, error: Exception, web: Web) -> None:
    web.content = error
    with pytest.raises(GoalError, match=f"Cannot download {URL} to "):
        fetch(URL, "md5:0", tmp_path, "data")
    assert left(tmp_path) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_an_answer_that_is_no_file(tmp_path: Path, status: int, web: Web) -> None:
    web.content, web.status = GOOD_TAR, status
    with pytest.raises(GoalError, match=f"Cannot download {URL} to .*{status}"):
        fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert left(tmp_path) == []


def test_a_download_that_breaks_off_can_be_tried_again(tmp_path: Path, web: Web) -> None:
    web.content, web.headers = GOOD_TAR[:-10], {"content-length": str(len(GOOD_TAR))}
    with pytest.raises(GoalError, match=f"Cannot download {URL} to .*IncompleteRead"):
        fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert left(tmp_path) == []
    web.content = GOOD_TAR
    fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert left(tmp_path) == ["data"]


@pytest.mark.parametrize("complete", [True, False])
def test_what_a_killed_process_left_is_used_or_cleared(
    tmp_path: Path, complete: bool, web: Web
) -> None:
    web.content = GOOD_TAR
    work = tmp_path / ".download-data"
    write_text(work / "files" / "data" / "half")
    write_text(work / "tmp123", "half")
    (work / "archive").write_bytes(GOOD_TAR if complete else GOOD_TAR[:-1])
    found = fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert web.asked == ([] if complete else [URL])
    assert sorted(path.name for path in found.iterdir()) == ["a.txt", "sub"]
    assert left(tmp_path) == ["data"]


def test_processes_take_turns_and_the_second_finds_it_done(tmp_path: Path, web: Web) -> None:
    started, waiting = threading.Event(), threading.Event()

    def slow() -> IO[bytes]:
        started.set()
        assert waiting.wait(30)
        assert not (tmp_path / "data").exists(), "nothing shows before it is complete"
        return io.BytesIO(GOOD_TAR)

    class Waiting(Reporter):
        def say(self, text: str) -> None:
            assert "waiting for it" in text
            waiting.set()

    web.content = slow
    first = threading.Thread(target=fetch, args=(URL, md5(GOOD_TAR), tmp_path, "data"))
    first.start()
    assert started.wait(30)
    found = fetch(URL, md5(GOOD_TAR), tmp_path, "data", reporter=Waiting())
    first.join(30)
    assert (found / "a.txt").read_bytes() == b"one"
    assert web.asked == [URL]


def test_a_stream_without_end_is_cut(tmp_path: Path, web: Web) -> None:
    sent: list[int] = []

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sent.append(1 << 16)
            return bytes(1 << 16)

    web.content = Endless()
    with pytest.raises(GoalError, match=f"{URL} sends more than 1000000 bytes"):
        fetch(URL, "md5:0", tmp_path, "data", max_bytes=1_000_000)
    assert left(tmp_path) == []
    assert 1_000_000 < sum(sent) <= 1_000_000 + (1 << 16)


def test_an_existing_folder_is_kept(tmp_path: Path, web: Web) -> None:
    web.content = GOOD_TAR
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").touch()
    with pytest.raises(GoalError, match="exists already"):
        fetch(URL, md5(GOOD_TAR), tmp_path, "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]
