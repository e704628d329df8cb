"""The manifest of a folder: what files it holds, how large they are, and their checksums.

``manifest.json`` also tells the folder's format and the version of goal that wrote it, and it
seals itself. Run folders have one, and so has each step of a model folder. A model's page, which
every command writes anew, carries its own checksum.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from goal import __version__
from goal.common.errors import GoalError
from goal.storage import files

FORMAT = 1
MANIFEST = "manifest.json"


def seal(folder: Path, names: Iterable[str]) -> None:
    """Write the manifest of `folder`: exactly these files, as they are now."""
    _write(folder, {name: facts(folder / name) for name in sorted(names)})


def amend(path: Path) -> None:
    """Enter a file that was written after its folder was sealed; no manifest, no entry."""
    manifest = read(path.parent)
    if manifest is not None:
        _write(path.parent, {**manifest, path.name: facts(path)})


def read(folder: Path) -> dict[str, Any] | None:
    """Return the entries of a folder's manifest, None if it has none.

    Raises:
        GoalError: The manifest is damaged, or of a format this version does not read.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    content = files.read_json(path)
    files.require_format(content.get("format"), FORMAT, path)
    entries = content.get("files")
    if not isinstance(entries, dict) or path.read_text("utf-8") != _text(
        content.get("goal"), entries
    ):
        raise GoalError(
            f"{path} is damaged: its checksum is wrong. Restore it from a copy; or delete it, and "
            f"`goal resume` writes one that vouches for the files as they are by then."
        )
    return entries


def facts(path: Path) -> dict[str, Any]:
    """Size and checksum of a file."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"bytes": stream.tell(), "sha256": digest}
    except OSError as error:
        raise GoalError(f"Cannot read {path}: {error.strerror}.") from error


def signed(page: str) -> str:
    """Give an HTML page a last line with the checksum of all lines before it."""
    return f"{page}<!-- sha256 {hashlib.sha256(page.encode()).hexdigest()} -->\n"


def signature_holds(page: bytes) -> bool:
    """Whether a page is as `signed` made it."""
    lines = page.splitlines(keepends=True)
    before = b"".join(lines[:-1])
    try:
        return signed(before.decode()).encode() == page
    except UnicodeDecodeError:
        return False


def _write(folder: Path, entries: dict[str, Any]) -> None:
    files.write_text(folder / MANIFEST, _text(__version__, entries))


def _text(version: Any, entries: dict[str, Any]) -> str:
    """The one way to write these entries, so that any other byte shows."""
    content = {"format": FORMAT, "goal": version, "files": entries}
    own = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "sha256": own}, indent=1) + "\n"
