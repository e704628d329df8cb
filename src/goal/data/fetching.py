"""Find a dataset on disk, fetch it if asked to, or say what is missing and how to get it.

pooch downloads and compares checksums, `tarfile` and `zipfile` unpack. Around them is a thin layer
for promises that they do not make: https alone, redirections included; no more bytes and files
than allowed; neither links nor names that lead out, not even mended ones; the result appears whole
or not at all, and several processes that want it take turns.
"""

import gzip
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin

import pooch

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.images import DataSettings
from goal.data.tar_files import members
from goal.storage.locks import waiting_for

CHUNK_BYTES = 1 << 20
MAX_BYTES = 8 << 30
MAX_FILES = 2_000_000
TIMEOUT_SECONDS = 60.0
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError),
    *(EOFError, RuntimeError, ValueError, struct.error, gzip.BadGzipFile),
)


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what it looks like on disk.

    `folder` is its folder below the root, `files` are the things that must be in there, `url` is
    an archive or, when `checksum` is empty, a page where people register and download by hand.
    """

    title: str
    folder: str
    files: tuple[str, ...]
    url: str
    checksum: str = ""

    def missing(self, place: Path) -> list[Path]:
        """Return the files and folders that `place` lacks."""
        return [place / name for name in self.files if not (place / name).exists()]


def locate(source: Source, settings: DataSettings, reporter: Reporter) -> Path:
    """Return the folder that holds the dataset: ``root/folder`` or the root itself.

    Raises:
        GoalError: Something is missing, with directions; or the download failed.
    """
    root = Path(settings.root).expanduser()
    places = (root / source.folder, root)
    complete = [place for place in places if not source.missing(place)]
    if complete:
        return complete[0]
    nearest = min(places, key=lambda place: len(source.missing(place)))
    if not settings.download or not source.checksum or places[0].exists():
        raise GoalError(_directions(source, nearest, root, settings.download))
    found = fetch(source.url, source.checksum, root, source.folder, reporter=reporter)
    if source.missing(found):
        raise GoalError(_directions(source, found, root, settings.download))
    return found


def _directions(source: Source, place: Path, root: Path, download: bool) -> str:
    lines = [
        f"{source.title} is not complete: {source.missing(place)[0]} is missing.",
        f"Get it from {source.url} and put it so that {root / source.folder} "
        f"holds {', '.join(source.files)}.",
    ]
    if not source.checksum:
        lines.append("Its licence asks for an account, so --download cannot fetch it.")
    elif download:
        lines.append(f"Move {root / source.folder} away, and --download fetches it anew.")
    else:
        lines.append("Or add --download to fetch it.")
    return " ".join(lines)


def fetch(
    url: str,
    checksum: str,
    target_dir: Path,
    folder: str,
    *,
    reporter: Reporter | None = None,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Download the archive at `url` and put the `folder` inside it at ``target_dir/folder``.

    The work is done in a hidden folder beside it, under a lock; the result appears in one rename,
    or not at all. When a process was killed, the next one begins anew, but with the archive if that
    was complete.

    Args:
        url: An https address of a .tar.gz, .tgz or .zip file.
        checksum: ``md5:<hex>`` or ``sha256:<hex>`` of the archive.
        target_dir: Where the folder goes; made if it does not exist.
        folder: Name of the folder in the archive that is wanted.
        reporter: Told of progress.
        max_bytes: The most that the archive may hold, packed or unpacked.
    """
    _require_https(url)
    if not checksum.startswith(("md5:", "sha256:")):
        raise GoalError(f"Unknown checksum '{checksum}': write md5:<hex> or sha256:<hex>.")
    target, reporter = target_dir / folder, reporter or Reporter()
    if target.exists():
        raise GoalError(f"{target} exists already. Move it away before downloading it again.")
    work = target_dir / f".download-{folder}"
    try:
        with waiting_for(target_dir, reporter, str(target_dir)):
            if not target.exists():  # else another process has fetched it meanwhile
                try:
                    packed = _download(url, checksum, work, reporter, max_bytes)
                    _unpack_folder(packed, target, url, max_bytes)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
    except (OSError, HTTPException) as error:
        why = f"{error}. Check the network and the disk and try again."
        raise GoalError(f"Cannot download {url} to {target_dir}: {why}") from error
    return target


def _require_https(url: str) -> None:
    if not url.lower().startswith("https://"):
        raise GoalError(f"Refused to download {url}: only https:// addresses are allowed.")


def _download(url: str, checksum: str, work: Path, reporter: Reporter, max_bytes: int) -> Path:
    """Return the archive, in the folder `work`, once its checksum is right."""
    pooch.get_logger().setLevel("WARNING")
    download = _Download(reporter, max_bytes)
    try:
        return Path(pooch.retrieve(url, checksum, "archive", work, downloader=download))
    except ValueError as error:
        raise GoalError(
            f"Refused what came from {url}: {error} Not being what was published, it is damaged "
            "or has been replaced; nothing was kept. Try again."
        ) from error


class _Download:
    """pooch's download over http, with https required, the size bounded, and progress shown.

    pooch writes the chunks into it as into a file; each passes through the reporter on its way.
    """

    def __init__(self, reporter: Reporter, max_bytes: int) -> None:
        self._reporter, self._max_bytes = reporter, max_bytes
        self._received = 0
        self._chunks: list[bytes] = []

    def __call__(self, url: str, output_file: Any, mod: Any) -> None:
        """Download `url` into the file; pooch calls this."""
        self._url = url
        get = pooch.HTTPDownloader(
            chunk_size=CHUNK_BYTES,
            timeout=TIMEOUT_SECONDS,
            headers={"Accept-Encoding": "identity"},
            hooks={"response": self._answered},
        )
        with Path(output_file).open("wb") as self._file:
            get(url, self, mod)
            self._file.writelines(self._tracked)

    def _answered(self, response: Any, **_: Any) -> None:
        """Look at an answer: before a redirection is followed, before the content is read."""
        _require_https(response.url)
        if response.is_redirect:
            _require_https(urljoin(response.url, response.headers["location"]))
        size = response.headers.get("content-length", "")
        count = -(-int(size) // CHUNK_BYTES) if size.isdecimal() else None
        task = f"Downloading {self._url} (MiB)"
        self._tracked = self._reporter.track(self._waiting(), count, task)

    def _waiting(self) -> Iterator[bytes]:
        while self._chunks:
            yield self._chunks.pop()

    def write(self, chunk: bytes) -> None:
        """Take a chunk, unless it is too much."""
        self._received += len(chunk)
        if self._received > self._max_bytes:
            limit = f"{self._max_bytes} bytes"
            raise GoalError(f"{self._url} sends more than {limit}: download stopped.")
        self._chunks.append(chunk)
        self._file.write(next(self._tracked))

    def flush(self) -> None:
        """Nothing waits to be written."""


def _unpack_folder(packed: Path, target: Path, url: str, max_bytes: int) -> None:
    files = packed.with_name("files")
    shutil.rmtree(files, ignore_errors=True)
    unpack(packed, files, max_bytes)
    if not (files / target.name).is_dir():
        raise GoalError(f"The archive at {url} holds no folder '{target.name}'.")
    (files / target.name).rename(target)


def unpack(archive: Path, target: Path, max_bytes: int = MAX_BYTES) -> None:
    """Unpack a .zip or .tar.gz file into `target`: plain files and folders within it, no more.

    Raises:
        GoalError: The archive is damaged, holds a link or device or a name that leads out of
            `target`, or unpacks to more than `max_bytes`.
    """
    extract = _unpack_zip if zipfile.is_zipfile(archive) else _unpack_tar
    try:
        target.mkdir(parents=True, exist_ok=True)
        extract(archive, target, _Allowance(max_bytes))
    except _DAMAGE as error:
        raise GoalError(f"Cannot unpack {archive.name}: {error}. It is damaged.") from error
    except OSError as error:
        why = f"{error}. It is damaged, or the disk is full"
        raise GoalError(f"Cannot unpack {archive.name}: {why}.") from error


def _unpack_tar(archive: Path, target: Path, allowance: "_Allowance") -> None:
    with gzip.open(archive) as unzipped:
        for opened, member in members(unzipped):
            allowance.spend(member.name, member.isdir() or member.isreg(), member.size)
            opened.extract(member, target, set_attrs=False, filter="data")


def _unpack_zip(archive: Path, target: Path, allowance: "_Allowance") -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            allowance.spend(member.filename, plain, member.file_size)
            opened.extract(member, target)


class _Allowance:
    """What may still be unpacked. Neither library writes more of a file than its header says."""

    def __init__(self, max_bytes: int) -> None:
        self._bytes, self._files = max_bytes, MAX_FILES

    def spend(self, name: str, plain: bool, size: int) -> None:
        """Refuse a member of an archive, or count it."""
        if not plain:
            raise GoalError(f"The archive holds {name!r}, a link or device: refused.")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or any(c in name for c in "\\:\0"):
            raise GoalError(f"The archive holds the name {name!r}, which leads out of its folder.")
        if size < 0:
            raise ValueError(f"{name!r} has a negative size")
        self._bytes, self._files = self._bytes - size, self._files - 1
        if self._bytes < 0:
            raise GoalError("The archive unpacks to more bytes than allowed: stopped.")
        if self._files < 0:
            raise GoalError(f"The archive holds more than {MAX_FILES:,} files: stopped.")
