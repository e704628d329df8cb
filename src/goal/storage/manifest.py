"""The manifest of a folder: what files it holds, how large they are, and their checksums.

``manifest.json`` also tells the folder's format and the version of goal that wrote it, and it
seals itself. Run folders have one, and so has each step of a model folder.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from goal import __version__
from goal.common.errors import GoalError
from goal.storage.seal import read_sealed, write_sealed

FORMAT = 1
MANIFEST = "manifest.json"
_MARKS = (MANIFEST, "settings.yaml", "stage.json")
_ADVICE = (
    "Restore it from a copy; or delete it, and `goal resume` writes one that vouches for the files "
    "as they are by then."
)


@dataclass
class Findings:
    """What verification found: what it checked, what is wrong, and what nobody vouches for."""

    checked: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unlisted: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that were checked."""
        return sum(path.stat().st_size for path in self.checked if path.exists())


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
    entries = read_sealed(path, FORMAT, _ADVICE).get("files")
    if not isinstance(entries, dict):
        raise GoalError(f"{path} is damaged: it lists no files. {_ADVICE}")
    return entries


def facts(path: Path) -> dict[str, Any]:
    """Size and checksum of a file."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"bytes": stream.tell(), "sha256": digest}
    except OSError as error:
        raise GoalError(f"Cannot read {path}: {error.strerror}.") from error


def _write(folder: Path, entries: dict[str, Any]) -> None:
    write_sealed(folder / MANIFEST, {"format": FORMAT, "goal": __version__, "files": entries})


# -- verification -----------------------------------------------------------------------------


def verify_all(folder: Path, found: Findings) -> None:
    """Compare every sealed folder in or below `folder` with its manifest."""
    for place in sealed_folders(folder):
        _verify(place, found)


def sealed_folders(folder: Path) -> list[Path]:
    """Folders in or below `folder` that have, or should have, a manifest."""
    return sorted({path.parent for mark in _MARKS for path in folder.rglob(mark)})


def _verify(folder: Path, found: Findings) -> None:
    try:
        entries = read(folder)
    except GoalError as error:
        found.problems.append(str(error))
        return
    if entries is None:
        found.problems.append(
            f"{folder / MANIFEST} is missing: nothing says how its files should be."
        )
        return
    found.checked.append(folder / MANIFEST)
    for name, expected in entries.items():
        found.checked.append(folder / name)
        found.problems += _differences(folder / name, name, expected)
    for path in _others(folder, entries):
        if path.name == "checkpoint.pt":  # of a run under way: changes too often for the manifest
            found.checked.append(path)
            from goal.storage import checkpoint  # torch: only where there is one

            found.problems += checkpoint.damage(path)
        else:
            found.unlisted.append(path)


def _others(folder: Path, entries: dict[str, Any]) -> Iterator[Path]:
    """Visible files that the manifest does not list, less those of sealed folders inside."""
    inner = [place for place in sealed_folders(folder) if place != folder]
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        listed = hidden or inside.as_posix() in {MANIFEST, *entries}
        if path.is_file() and not listed and not any(map(path.is_relative_to, inner)):
            yield path


def _differences(path: Path, name: str, expected: Any) -> list[str]:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return [f"{path} leads out of its folder."]
    if not path.exists():
        return [f"{path} is missing."]
    try:
        found = facts(path)
    except GoalError as error:
        return [str(error)]
    if found == expected:
        return []
    return [f"{path} has changed since it was written: {found}, expected {expected}."]
