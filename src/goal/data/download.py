"""Fetch a public archive: over https only, checked, and unpacked whole or not at all."""

import hashlib
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO
from urllib.request import HTTPRedirectHandler, Request, build_opener

from goal.common.errors import GoalError
from goal.common.progress import Reporter

CHUNK_BYTES = 1 << 20
MAX_BYTES = 8 << 30
MAX_FILES = 2_000_000
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, ValueError, struct.error),
)
TIMEOUT_SECONDS = 60.0

Opener = Callable[[str], AbstractContextManager[IO[bytes]]]


class HttpsRedirects(HTTPRedirectHandler):
    """Follows redirections as long as they stay on https."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Refuse a redirection to anything but https."""
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    """Raise an error unless `url` is an https address."""
    if not url.lower().startswith("https://"):
        raise GoalError(f"Refused to download {url}: only https:// addresses are allowed.")


def open_url(url: str) -> AbstractContextManager[IO[bytes]]:
    """Open `url` for reading with the standard library."""
    response: AbstractContextManager[IO[bytes]] = build_opener(HttpsRedirects).open(
        url, timeout=TIMEOUT_SECONDS
    )
    return response


def fetch(
    url: str,
    checksum: str,
    target_dir: Path,
    folder: str,
    *,
    reporter: Reporter | None = None,
    opener: Opener = open_url,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Download the archive at `url` and put the `folder` inside it at ``target_dir/folder``.

    The work is done in a temporary folder; the result appears in one rename, or not at all.

    Args:
        url: An https address of a .tar.gz, .tgz or .zip file.
        checksum: ``md5:<hex>`` or ``sha256:<hex>`` of the archive.
        target_dir: Where the folder goes; made if it does not exist.
        folder: Name of the folder in the archive that is wanted.
        reporter: Told of progress.
        opener: Opens the address; tests put their own here.
        max_bytes: The most that the archive may hold, packed or unpacked.
    """
    require_https(url)
    target = target_dir / folder
    if target.exists():
        raise GoalError(f"{target} exists already. Move it away before downloading it again.")
    try:
        target_dir.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target_dir, prefix=".download-") as work:
            packed, unpacked = Path(work, "archive"), Path(work, "files")
            _receive(url, opener, packed, reporter or Reporter(), max_bytes)
            verify(packed, checksum, url)
            unpack(packed, unpacked, max_bytes)
            _move(unpacked / folder, target, url)
    except (OSError, HTTPException) as error:
        why = f"{error}. Check the network and the disk and try again."
        raise GoalError(f"Cannot download {url} to {target_dir}: {why}") from error
    return target


def _receive(url: str, opener: Opener, path: Path, reporter: Reporter, max_bytes: int) -> None:
    received = 0
    with opener(url) as response, path.open("wb") as file:
        total: int | None = getattr(response, "length", None)
        chunks = iter(lambda: response.read(CHUNK_BYTES), b"")
        count = -(-total // CHUNK_BYTES) if total else None
        for chunk in reporter.track(chunks, count, f"Downloading {url} (MiB)"):
            received += len(chunk)
            if received > max_bytes:
                raise GoalError(f"{url} sends more than {max_bytes} bytes: download stopped.")
            file.write(chunk)


def _move(folder: Path, target: Path, url: str) -> None:
    if not folder.is_dir():
        raise GoalError(f"The archive at {url} holds no folder '{folder.name}'.")
    folder.rename(target)


def verify(path: Path, checksum: str, origin: str) -> None:
    """Raise an error unless the file has the `checksum` (``md5:<hex>`` or ``sha256:<hex>``)."""
    kind, _, expected = checksum.partition(":")
    if kind not in ("md5", "sha256"):
        raise GoalError(f"Unknown checksum '{checksum}': write md5:<hex> or sha256:<hex>.")
    with path.open("rb") as file:
        found = hashlib.file_digest(
            file, lambda: hashlib.new(kind, usedforsecurity=False)
        ).hexdigest()
    if found != expected.lower():
        raise GoalError(
            f"What came from {origin} has the {kind} {found}, not the published {expected}. "
            "It is damaged or has been replaced; nothing was kept. Try again."
        )


def unpack(archive: Path, target: Path, max_bytes: int = MAX_BYTES) -> None:
    """Unpack a .zip or .tar.gz file into `target`: plain files and folders within it, no more.

    Raises:
        GoalError: The archive is damaged, holds a link or device or a name that leads out of
            `target`, or unpacks to more than `max_bytes`.
    """
    members = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    budget = max_bytes
    try:
        target.mkdir(parents=True, exist_ok=True)
        for number, (name, content) in enumerate(members(archive)):
            if number >= MAX_FILES:
                raise GoalError(f"The archive holds more than {MAX_FILES:,} files: stopped.")
            path = _inside(target, name)
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                budget -= _copy(content, file, budget)
    except _DAMAGE as error:
        raise GoalError(f"Cannot unpack {archive.name}: {error}. It is damaged.") from error
    except OSError as error:
        why = f"{error}. It is damaged, or the disk is full"
        raise GoalError(f"Cannot unpack {archive.name}: {why}.") from error


def _copy(source: IO[bytes], target: IO[bytes], budget: int) -> int:
    """Copy up to `budget` bytes; more than that is an error, whatever the headers promise."""
    copied = 0
    while chunk := source.read(CHUNK_BYTES):
        copied += len(chunk)
        if copied > budget:
            raise GoalError("The archive unpacks to more bytes than allowed: stopped.")
        target.write(chunk)
    return copied


def _inside(target: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or any(c in name for c in "\\:\0"):
        raise GoalError(f"The archive holds the name {name!r}, which leads out of its folder.")
    return target / path


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with tarfile.open(archive, "r:gz") as opened:
        for member in opened:
            if not member.isdir() and not member.isreg():
                raise GoalError(f"The archive holds {member.name!r}, a link or device: refused.")
            yield member.name, opened.extractfile(member)


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise GoalError(
                    f"The archive holds {member.filename!r}, a link or device: refused."
                )
            yield member.filename, None if member.is_dir() else opened.open(member)
