"""Folders gone through and deleted without following links."""

import os
import shutil
from pathlib import Path

from goal.common.errors import GoalError
from goal.storage.files import inside


def walk(root: Path, problems: list[str]) -> list[Path]:
    """Files in or below `root`, in order; links are not followed.

    Enters into `problems` what nobody could look at: folders that cannot be read, links that lead
    out of `root` or nowhere, pipes and devices. A link within `root` is no problem: what it leads
    to is found in its own place.
    """
    found = []

    def unreadable(error: OSError) -> None:
        problems.append(f"Cannot look into {error.filename}: {error.strerror}.")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        for path in (Path(folder, name) for name in (*folders, *names)):
            if path.is_symlink():
                problems += _astray(root, path)
            elif path.is_file():
                found.append(path)
            elif not path.is_dir():
                problems.append(f"{path} is a pipe or device, not a regular file.")
    return sorted(found)


def _astray(root: Path, link: Path) -> list[str]:
    """What is wrong with a link below `root`."""
    try:
        inside(root, link.relative_to(root))
    except GoalError as error:
        return [str(error)]
    return [] if link.exists() else [f"{link} is a link to what is not there."]


def remove(root: Path, name: str) -> None:
    """Delete ``root/name`` and all that is in it, if it is there; links go, their targets stay."""
    path = root / name
    inside(root, path.parent.relative_to(root))
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
