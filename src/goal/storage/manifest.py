"""The manifest of a folder: what files it holds, how large they are, and their checksums.

``manifest.json`` also tells the folder's format and the version of goal that wrote it, and it
seals itself. Run folders have one, and so has each step of a model folder; there, each manifest
also holds the seal of the step before, so that the steps form a chain.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goal import __version__
from goal.common.errors import GoalError
from goal.storage.files import inside, opened
from goal.storage.folders import walk
from goal.storage.seal import checksum, read_sealed, write_sealed

FORMAT = 1
MOST_BYTES = 8 << 30
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


def seal(folder: Path, names: Iterable[str], previous: str | None = None) -> None:
    """Write the manifest of `folder`: exactly these files, as they are now.

    Args:
        folder: The folder.
        names: Its files, relative to it.
        previous: In a chain of folders, the seal of the one before (`seal_of`), "" for the first;
            None for a folder that stands alone.
    """
    entries = {name: facts(inside(folder, name)) for name in sorted(names)}
    _write(folder, entries, previous)


def amend(path: Path) -> None:
    """Enter a file that was written after its folder was sealed; no manifest, no entry."""
    content = _read(path.parent)
    if content is not None:
        entries = {**content["files"], path.name: facts(path)}
        _write(path.parent, entries, content.get("previous"))


def read(folder: Path) -> dict[str, Any] | None:
    """Return the entries of a folder's manifest, None if it has none.

    Raises:
        GoalError: The manifest is damaged, or of a format this version does not read.
    """
    content = _read(folder)
    return None if content is None else dict(content["files"])


def seal_of(folder: Path) -> str:
    """Return what identifies a sealed folder: the checksum of its manifest, and so of its files."""
    content = _read(folder)
    if content is None:
        raise GoalError(_missing(folder))
    return checksum(content)


def _previous(folder: Path) -> Any:
    return (_read(folder) or {}).get("previous")


def _missing(folder: Path) -> str:
    return f"{folder / MANIFEST} is missing: nothing says how its files should be."


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.exists() and not path.is_symlink():
        return None
    content = read_sealed(path, FORMAT, _ADVICE)
    if not isinstance(content.get("files"), dict):
        raise GoalError(f"{path} is damaged: it lists no files. {_ADVICE}")
    return content


def facts(path: Path) -> dict[str, Any]:
    """Size and checksum of a file."""
    try:
        with opened(path) as stream:
            if os.fstat(stream.fileno()).st_size > MOST_BYTES:
                raise GoalError(f"Refused to read {path}: it is larger than {MOST_BYTES:,} bytes.")
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"bytes": stream.tell(), "sha256": digest}
    except OSError as error:
        raise GoalError(f"Cannot read {path}: {error.strerror}.") from error


def _write(folder: Path, entries: dict[str, Any], previous: str | None) -> None:
    content = {"format": FORMAT, "goal": __version__, "files": entries}
    chained = {} if previous is None else {"previous": previous}
    write_sealed(folder / MANIFEST, {**content, **chained})


# -- verification -----------------------------------------------------------------------------


def verify_all(folder: Path, found: Findings) -> None:
    """Compare every sealed folder in or below `folder` with its manifest, and their order."""
    files = walk(folder, found.problems)
    places = sorted({path.parent for path in files if path.name in _MARKS})
    for place in places:
        _verify(place, [path for path in files if _nearest(path, places) == place], found)
    steps = {path.parent for path in files if path.name == "stage.json"} - {folder}
    for parent in sorted({place.parent for place in steps if place.name.isdecimal()}):
        told = set(found.problems)
        found.problems += [text for text in chain_damage(parent) if text not in told]


def chain_damage(parent: Path) -> list[str]:
    """What is wrong with the order of the sealed folders ``000``, ``001``, ... in `parent`.

    Folders that were sealed before there were chains are looked at for gaps and copies alone.
    """
    numbered = (place for place in parent.iterdir() if place.name.isdecimal() and place.is_dir())
    problems: list[str] = []
    seals: dict[str, Path] = {}
    before: str | None = ""  # None where it is not known
    expected = 0
    for place in sorted(numbered, key=lambda place: int(place.name)):
        if int(place.name) != expected:
            problems.append(f"{parent / f'{expected:03d}'} is missing, but {place.name} is there.")
            before = None
        expected = int(place.name) + 1
        try:
            own = seal_of(place)
        except GoalError as error:
            problems.append(str(error))
            before = None
            continue
        if own in seals:
            problems.append(f"{place} is a copy of {seals[own]}; its own content is gone.")
        elif before is not None and _previous(place) not in (before, None):
            problems.append(f"{place} does not continue the one before it: one was exchanged.")
        before = own
        seals.setdefault(own, place)
    return problems


def _nearest(path: Path, places: list[Path]) -> Path | None:
    """The innermost of the folders that `path` lies in."""
    return next((place for place in reversed(places) if path.is_relative_to(place)), None)


def _verify(folder: Path, files: list[Path], found: Findings) -> None:
    try:
        entries = read(folder)
    except GoalError as error:
        found.problems.append(str(error))
        return
    if entries is None:
        found.problems.append(_missing(folder))
        return
    found.checked.append(folder / MANIFEST)
    for name, expected in entries.items():
        found.checked.append(folder / name)
        found.problems += _differences(folder, name, expected)
    for path in files:
        inner = path.relative_to(folder)
        if inner.as_posix() in {MANIFEST, *entries} or any(p.startswith(".") for p in inner.parts):
            continue
        if path.name == "checkpoint.pt":  # of a run under way: changes too often for the manifest
            found.checked.append(path)
            from goal.storage import checkpoint  # torch: only where there is one

            found.problems += checkpoint.damage(path)
        else:
            found.unlisted.append(path)


def _differences(folder: Path, name: str, expected: Any) -> list[str]:
    path = folder / name
    try:
        if not inside(folder, name).exists():
            return [f"{path} is missing."]
        found = facts(path)
    except GoalError as error:
        return [str(error)]
    if found == expected:
        return []
    return [f"{path} has changed since it was written: {found}, expected {expected}."]
