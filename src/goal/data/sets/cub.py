"""CUB-200-2011: 11,788 photographs of 200 kinds of birds, with the official split."""

from pathlib import Path

import numpy as np

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.fetching import Source, locate
from goal.data.images import Dataset, DatasetSpec, DataSettings, FileImages
from goal.data.listing import lines_of

_LONGEST = 200  # of a path in images.txt; file systems take a little more
_DIGITS = 9

SOURCE = Source(
    title="CUB-200-2011",
    folder="CUB_200_2011",
    files=(
        "images.txt",
        "image_class_labels.txt",
        "train_test_split.txt",
        "classes.txt",
        "images",
    ),
    url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
    checksum="md5:97eceeb196236b17998738112f37df78",
)


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """List the official files; class ids are the official ones minus one."""
    folder = locate(SOURCE, settings, reporter)
    names = _table(folder / "classes.txt")
    if sorted(names) != list(range(1, len(names) + 1)):
        raise GoalError(f"{folder / 'classes.txt'} should number the classes 1, 2, 3, ...")
    paths = _table(folder / "images.txt")
    label_of = _numbers(folder / "image_class_labels.txt", paths, range(1, len(names) + 1))
    in_train = _numbers(folder / "train_test_split.txt", paths, range(2))
    return Dataset(
        name="cub",
        class_names=tuple(names[number] for number in sorted(names)),
        train=_images(folder, {i: p for i, p in paths.items() if in_train[i]}, label_of),
        test=_images(folder, {i: p for i, p in paths.items() if not in_train[i]}, label_of),
    )


def _table(path: Path) -> dict[int, str]:
    """Read lines of a number, a blank and a text."""
    table: dict[int, str] = {}
    for line in lines_of(path):
        key, _, value = line.partition(" ")
        if not key.isdecimal() or len(key) > _DIGITS or not value:
            raise GoalError(
                f"{path}: the line {line[:80]!r} should be a number, a blank and a value."
            )
        if int(key) in table:
            raise GoalError(f"{path} lists the number {key} more than once.")
        table[int(key)] = value
    if not table:
        raise GoalError(f"{path} is empty.")
    return table


def _numbers(path: Path, images: dict[int, str], allowed: range) -> dict[int, int]:
    """Read a number for every image."""
    table = _table(path)
    if table.keys() != images.keys():
        odd = min(table.keys() ^ images.keys())
        raise GoalError(f"{path} and images.txt do not list the same images: see number {odd}.")
    for image, value in table.items():
        if not value.isdecimal() or len(value) > _DIGITS or int(value) not in allowed:
            raise GoalError(
                f"{path}: image {image} has the value {value!r}, "
                f"expected {allowed[0]} to {allowed[-1]}."
            )
    return {image: int(value) for image, value in table.items()}


def _images(folder: Path, paths: dict[int, str], label_of: dict[int, int]) -> FileImages:
    ids = sorted(paths)
    for name in paths.values():
        odd = "\0" in name or len(name) > _LONGEST
        if odd or Path(name).is_absolute() or ".." in Path(name).parts:
            raise GoalError(f"{folder / 'images.txt'} lists {name[:80]!r}, which leads elsewhere.")
    files = [folder / "images" / paths[number] for number in ids]
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None:
        raise GoalError(f"{folder / 'images.txt'} lists {absent}, which is missing.")
    return FileImages(files, np.array([label_of[number] - 1 for number in ids], dtype=np.int64))


SPEC = DatasetSpec(
    summary="CUB-200-2011, 200 kinds of birds, about 30 training images each",
    load=load,
    defaults={
        "protocol": {
            "base_classes": 100,
            "base_list": "cub-ssb",  # the Semantic Shift Benchmark's, as in the published runs
            "stages": 5,
            "unlabelled_new": 25,
            "unlabelled_base": 5,
            "unlabelled_discovered": 5,
        }
    },
)
