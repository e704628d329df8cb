"""Where a model's files are: copying them, and keeping other files out of their folder."""

import os
import shutil
from pathlib import Path

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.models.log import JUDGEMENT, LOG
from goal.models.records import PAGE


def copy_model(source: Path, target: Path) -> None:
    """Copy a model's files, but nothing that it links to and nothing that is not part of it."""
    for name in _names(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name, follow_symlinks=False)


def model_files(source: Path) -> dict[str, bytes]:
    """The content of a model's files, by name."""
    return {name: (source / name).read_bytes() for name in _names(source)}


def _names(source: Path) -> list[str]:
    """A model's files, or an error if any part of it is a link."""
    names = [LOG, JUDGEMENT, PAGE, "stages", "features"]
    for place in ("stages", "features"):
        for parent, folders, listed in os.walk(source / place):
            inside = Path(parent).relative_to(source)
            names += [(inside / name).as_posix() for name in sorted(listed + folders)]
    links = [name for name in names if (source / name).is_symlink()]
    if links:
        raise GoalError(
            f"{file_name(source / links[0])} is a link. A model's files lie in its folder; put "
            "the file itself there."
        )
    return [name for name in names if (source / name).is_file()]


def model_around(path: Path) -> Path | None:
    """The model folder that a file is, or would be, in."""
    for folder in path.resolve().parents:
        if (folder / "stages" / "000" / "stage.json").exists():
            return folder
    return None


def outside_models(path: Path) -> None:
    """Raise an error if a file or folder to be written is, or would be, in a model folder."""
    model = model_around(path / "inside")
    if model is not None:
        raise GoalError(
            f"{file_name(path)} lies in the model folder {file_name(model)}, which holds the "
            "model's own files only. Choose another place."
        )


def writable(path: Path, force: bool) -> Path:
    """Return where to write a file, or raise an error if something there would be lost."""
    outside_models(path)
    if os.path.lexists(path) and not force:
        raise GoalError(f"{file_name(path)} exists. Choose another name, or give --force.")
    return path
