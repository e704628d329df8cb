"""Verification: every run, model, token bank and base model compared with its checksums."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from goal.storage import checkpoint, files, manifest
from goal.common.errors import GoalError
from goal.bank.shelf import FORMAT as SHELF_FORMAT
from goal.bank.shelf import RECORD, checksums, row_dtype


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: how much it checked, what is wrong, and what nobody vouches for."""

    checked: int
    size: int
    problems: list[str]
    unlisted: list[Path]


def verify(folder: Path) -> Verdict:
    """Check every run, model, token bank and base model in or below `folder`."""
    checked: list[Path] = []
    problems: list[str] = []
    unlisted: list[Path] = []
    for place in _sealed_folders(folder):
        _verify_sealed(place, checked, problems, unlisted)
    for about in sorted(folder.rglob("about.json")):
        problems += _shelf_damage(about.parent)
        checked += [path for path in sorted(about.parent.iterdir()) if path.is_file()]
    for path in sorted(path for path in folder.rglob("*.pt") if path.parent.name == "base"):
        problems += _checkpoint_damage(path)
        checked.append(path)
    for path in sorted(folder.rglob("judgement.json")):
        problems += _judgement_damage(path)
        checked.append(path)
    for path in sorted(folder.rglob("report.html")):
        if path not in checked + unlisted and _is_model(path.parent):
            problems += _page_damage(path)
            checked.append(path)
    if not checked and not problems:
        raise GoalError(f"{folder} holds no run, model or token bank that could be verified.")
    size = sum(path.stat().st_size for path in checked if path.exists())
    return Verdict(len(checked), size, problems, unlisted)


@contextmanager
def blaming_damage(folders: Iterable[Path]) -> Iterator[None]:
    """Turn whatever goes wrong with damaged folders into an error that names the damage.

    With folders that are as they were written, an exception is a defect and passes unchanged.
    """
    try:
        yield
    except GoalError:
        raise
    except Exception as error:
        for folder in folders:
            if problems := verify(folder).problems:
                why = f"{type(error).__name__}: {error}"
                raise GoalError(f"{folder} is damaged ({why}). {problems[0]}") from error
        raise


def _sealed_folders(folder: Path) -> list[Path]:
    marks = (manifest.MANIFEST, "settings.yaml", "stage.json")
    return sorted({path.parent for mark in marks for path in folder.rglob(mark)})


def _verify_sealed(
    folder: Path, checked: list[Path], problems: list[str], unlisted: list[Path]
) -> None:
    try:
        entries = manifest.read(folder)
    except GoalError as error:
        problems.append(str(error))
        return
    if entries is None:
        problems.append(
            f"{folder / manifest.MANIFEST} is missing: nothing says how its files should be."
        )
        return
    checked.append(folder / manifest.MANIFEST)
    for name, expected in entries.items():
        checked.append(folder / name)
        problems += _differences(folder / name, name, expected)
    for path in _others(folder, entries):
        if path.name == "checkpoint.pt":  # of a run under way: changes too often for the manifest
            checked.append(path)
            problems += _checkpoint_damage(path)
        else:
            unlisted.append(path)


def _others(folder: Path, entries: dict[str, Any]) -> Iterator[Path]:
    """Visible files that the manifest does not list, less those of sealed folders inside."""
    inner = [place for place in _sealed_folders(folder) if place != folder]
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        listed = hidden or inside.as_posix() in {manifest.MANIFEST, *entries}
        if path.is_file() and not listed and not any(map(path.is_relative_to, inner)):
            yield path


def _differences(path: Path, name: str, expected: Any) -> list[str]:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return [f"{path} leads out of its folder."]
    if not path.exists():
        return [f"{path} is missing."]
    try:
        found = manifest.facts(path)
    except GoalError as error:
        return [str(error)]
    if found == expected:
        return []
    return [f"{path} has changed since it was written: {found}, expected {expected}."]


def _checkpoint_damage(path: Path) -> list[str]:
    try:
        checkpoint.load(path)
    except GoalError as error:
        return [str(error)]
    return []


def _judgement_damage(path: Path) -> list[str]:
    """Compare what a person decided about a model's classes with the checksum in the same file."""
    try:
        content = files.read_json(path)
    except GoalError as error:
        return [str(error)]
    own = content.pop("sha256", None)
    expected = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    written = json.dumps({**content, "sha256": own}, indent=1) + "\n"
    if own == expected and path.read_text("utf-8") == written:
        return []
    return [f"{path} has changed since it was written. Restore it from a copy of the model."]


def _is_model(folder: Path) -> bool:
    return any(folder.glob("stages/*/stage.json"))


def _page_damage(path: Path) -> list[str]:
    """Compare a model's page with the checksum in its last line."""
    if manifest.signature_holds(path.read_bytes()):
        return []
    return [f"{path} has changed since it was written. `goal show` writes it anew."]


def _shelf_damage(folder: Path) -> list[str]:
    """Compare a shelf of the token bank with its name and its rows with their checksums."""
    path = folder / "about.json"
    try:
        about = files.read_json(path)
        files.require_format(about.get("format"), SHELF_FORMAT, path)
        layout = row_dtype(about)
    except (GoalError, KeyError, TypeError, ValueError) as error:
        return [f"{path} is damaged ({error}). The next run that needs it builds it anew."]
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    if name != folder.name or path.read_text("utf-8") != json.dumps(about, indent=1) + "\n":
        return [f"{path} does not describe this shelf. The next run builds it anew."]
    index, tokens = folder / "rows.bin", folder / "tokens.bin"
    if not index.exists() and not tokens.exists():
        return []
    if not index.exists() or not tokens.exists():
        return [f"{folder} lacks rows.bin or tokens.bin. The next run computes the rows again."]
    records = np.fromfile(index, dtype=RECORD)
    rows = tokens.stat().st_size // layout.itemsize
    if index.stat().st_size % RECORD.itemsize or rows < len(records):
        return [f"{index} and {tokens} do not fit: one has been cut short."]
    data = np.memmap(tokens, dtype=layout, mode="r", shape=(rows,)) if rows else ()
    bad = [
        number
        for number, (record, row) in enumerate(zip(records, data, strict=False))
        if int(record["crc"]) not in checksums(row, record["digest"])
    ]
    why = "fails its checksum, or its entry in rows.bin does. The next run computes it again."
    return [f"{tokens}: row {number} {why}" for number in bad]
