"""Your own images: one folder per class, with or without a split of your own."""

import hashlib
import os
from pathlib import Path

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.images import Dataset, DatasetSpec, DataSettings
from goal.data.listing import HIDDEN, class_folders, collect, hidden_folders, image_files


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """List ``root/<class>/*`` or, if both are there, ``root/train/<class>/*`` and root/test."""
    root = Path(settings.root).expanduser()
    if not root.is_dir():
        raise GoalError(
            f"There is no folder {root}. Give, as root, a folder that holds one folder of images "
            "per class."
        )
    parts = [root / "train", root / "test"]
    given = all(part.is_dir() for part in parts)
    for hidden in [path for part in (parts if given else [root]) for path in hidden_folders(part)]:
        reporter.warn(f"Skipped {file_name(hidden)}: {HIDDEN}.")
    if given:
        return _given_split(root)
    return _hashed_split(root, settings.test_fraction)


def _given_split(root: Path) -> Dataset:
    classes = _classes(root / "train")
    tested = class_folders(root / "test")
    unknown = sorted(set(tested) - set(classes))
    if unknown:
        raise GoalError(
            f"{root / 'test'} holds the class {unknown[0]!r}, which {root / 'train'} lacks. "
            "Every test class needs training images."
        )
    train = {i: image_files(root / "train" / name) for i, name in enumerate(classes)}
    test = {classes.index(name): image_files(root / "test" / name) for name in tested}
    return Dataset("folder", tuple(map(file_name, classes)), collect(train), collect(test))


def _hashed_split(root: Path, test_fraction: float) -> Dataset:
    classes = _classes(root)
    train: dict[int, list[Path]] = {}
    test: dict[int, list[Path]] = {}
    for label, name in enumerate(classes):
        train[label], test[label] = split(image_files(root / name), test_fraction)
    return Dataset("folder", tuple(map(file_name, classes)), collect(train), collect(test))


def _classes(parent: Path) -> list[str]:
    classes = class_folders(parent)
    if not classes:
        raise GoalError(f"{parent} holds no class folders. Make one folder of images per class.")
    return classes


def split(files: list[Path], test_fraction: float) -> tuple[list[Path], list[Path]]:
    """Divide the files of one class into train and test.

    Each file's own name decides, so new files leave the others where they are. The one exception:
    if two or more files would all fall on one side, the file nearest to the other side goes there,
    until a newcomer takes its place.
    """
    rank = {file: _rank(file) for file in files}
    test = {file for file in files if rank[file] < test_fraction}
    if len(files) > 1 and not test:
        test = {min(files, key=rank.__getitem__)}
    elif len(files) > 1 and len(test) == len(files):
        test.remove(max(files, key=rank.__getitem__))
    elif len(files) == 1:
        test = set()
    return [file for file in files if file not in test], [file for file in files if file in test]


def _rank(file: Path) -> float:
    """A number in [0, 1) that depends on the names of the file and its class alone."""
    digest = hashlib.sha256(os.fsencode(f"{file.parent.name}/{file.name}")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


SPEC = DatasetSpec(
    summary="Your own images: one folder per class, or train/ and test/ with such folders",
    load=load,
    defaults={},
)
