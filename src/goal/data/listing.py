"""Small readers that the datasets made of image files share."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.images import FileImages
from goal.storage.files import read_text

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

MOST_LIST_BYTES = 2 << 30
HIDDEN = "a hidden folder: its name begins with a dot"


def class_folders(parent: Path) -> list[str]:
    """Names of the folders in `parent`, sorted; hidden ones do not count."""
    return sorted(entry.name for entry in _folders(parent) if not entry.name.startswith("."))


def hidden_folders(parent: Path) -> list[Path]:
    """Folders in `parent` that are no classes because their names begin with a dot."""
    return sorted(entry for entry in _folders(parent) if entry.name.startswith("."))


def _folders(parent: Path) -> list[Path]:
    try:
        return [entry for entry in parent.iterdir() if entry.is_dir()]
    except OSError as error:
        raise GoalError(f"Cannot list the folder {file_name(parent)}: {error}.") from error


def image_files(folder: Path) -> list[Path]:
    """Image files in `folder`, sorted by name; an error if there are none."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in entries if _is_image(entry)]
    except OSError as error:
        raise GoalError(f"Cannot list the folder {file_name(folder)}: {error}.") from error
    if not found:
        raise GoalError(
            f"The folder {file_name(folder)} holds no images ({', '.join(IMAGE_SUFFIXES)}). "
            "Add some or remove the folder."
        )
    return [folder / name for name in sorted(found)]


def _is_image(entry: os.DirEntry[str]) -> bool:
    name = entry.name.lower()
    return name.endswith(IMAGE_SUFFIXES) and not name.startswith(".") and entry.is_file()


def collect(paths_of: Mapping[int, Sequence[Path]]) -> FileImages:
    """Join the files of each class id into one set of images."""
    paths = [path for files in paths_of.values() for path in files]
    labels = [label for label, files in paths_of.items() for _ in files]
    return FileImages(paths, np.array(labels, dtype=np.int64))


def text_of(path: Path) -> str:
    """A text file that a person or a dataset names; never a pipe, a device or a vast file."""
    return read_text(path, MOST_LIST_BYTES, given=True).removeprefix("\ufeff")


def lines_of(path: Path) -> list[str]:
    """Lines of a text file without surrounding blanks; empty ones are left out."""
    text = text_of(path)
    return [line.strip() for line in text.splitlines() if line.strip()]


def require_unique(names: Sequence[str], path: Path) -> None:
    """Raise an error if `path` lists a name twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise GoalError(f"{path} lists {name!r} more than once.")
