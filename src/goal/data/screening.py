"""Which of many files are images: a quick look at each, side by side, before hours of work.

Only headers are read here. Damage further inside shows when a file is decoded, and then it is
skipped with its reason just the same (`TokenBank.open`).
"""

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.decoding import UnreadableImage, check_size, explain, opened
from goal.data.listing import HIDDEN, class_folders, hidden_folders

_AT_ONCE = 1000
_LINKED = "a link to a folder: links are not followed"
_READERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Screened:
    """Files that look usable, in order, and the others with the reasons."""

    paths: list[Path]
    skipped: list[tuple[Path, str]]


def screen_below(place: Path, reporter: Reporter) -> Screened:
    """Screen a file, or everything below a folder, sorted by path; hidden files do not count."""
    if not place.exists():
        raise GoalError(f"There is no file or folder {file_name(place)}.")
    if not place.is_dir():
        return screen([place], reporter)
    unlisted: list[tuple[Path, str]] = []
    found = screen(sorted(_files_below(place, unlisted)), reporter)
    return Screened(found.paths, unlisted + found.skipped)


def screen_classes(root: Path, reporter: Reporter) -> dict[str, Screened]:
    """Screen one folder per class, by class name, sorted."""
    if not root.is_dir():
        name = file_name(root)
        what = f"{name} is a file" if root.exists() else f"There is no folder {name}"
        raise GoalError(
            f"{what}. Labels are given by folders: give a folder that holds one folder of images "
            "per class, named like it."
        )
    listed = class_folders(root)
    names = [name for name in listed if not (root / name).is_symlink()]
    if not names:
        but = " but links, which are not followed" if listed else ""
        raise GoalError(
            f"{file_name(root)} holds no class folders{but}. Make one folder of images per class."
        )
    classes = {file_name(name): screen_below(root / name, reporter) for name in names}
    if len(classes) < len(names):
        raise GoalError(f"Two class folders in {file_name(root)} are spelt alike. Rename one.")
    for name, found in classes.items():
        if not found.paths:
            raise GoalError(
                f"The class folder {file_name(root / name)} holds no readable image "
                f"({len(found.skipped)} files skipped). Add some or remove the folder."
            )
    left_out = [(path, HIDDEN) for path in hidden_folders(root)]
    left_out += [(root / name, _LINKED) for name in listed if name not in names]
    first = next(iter(classes.values()))
    first.skipped[:0] = left_out  # they belong to no class; people are told of all together
    return classes


def screen(paths: Sequence[Path], reporter: Reporter) -> Screened:
    """Look at each file's size and header."""
    usable: list[Path] = []
    skipped: list[tuple[Path, str]] = []
    starts = range(0, len(paths), _AT_ONCE)
    with ThreadPoolExecutor(_READERS) as pool:
        for start in reporter.track(starts, len(starts), "Looking at files"):
            part = paths[start : start + _AT_ONCE]
            for path, reason in zip(part, pool.map(_problem, part), strict=True):
                if reason is None:
                    usable.append(path)
                else:
                    skipped.append((path, reason))
    return Screened(usable, skipped)


def _problem(path: Path) -> str | None:
    """Why a file cannot be used, None if nothing is seen so far."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return "not a regular file"
        if facts.st_size == 0:
            return "empty file"
        with opened(path) as image:
            check_size(path, image)
    except UnreadableImage as error:
        return error.reason
    except MemoryError as error:
        raise GoalError(
            f"There is not enough memory to look at the image {file_name(path)}. Remove it, or "
            f"leave more memory to goal."
        ) from error
    except Exception as error:  # Pillow's readers raise almost anything on damaged bytes
        return explain(error)
    return None


def _files_below(folder: Path, unlisted: list[tuple[Path, str]]) -> Iterator[Path]:
    """Walk a tree; folders that are links, hidden or cannot be listed are noted, not entered."""

    def note(error: OSError) -> None:
        unlisted.append((Path(error.filename), f"cannot be listed: {error.strerror}"))

    for parent, folders, files in os.walk(folder, onerror=note):
        for name in sorted(folders):
            if name.startswith("."):
                unlisted.append((Path(parent, name), HIDDEN))
            elif Path(parent, name).is_symlink():
                unlisted.append((Path(parent, name), _LINKED))
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if not name.startswith("."))
