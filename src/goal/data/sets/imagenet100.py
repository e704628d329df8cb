"""ImageNet-100: 100 of the 1000 classes of ImageNet; its val set is the test set."""

from pathlib import Path

import numpy as np

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.fetching import Source, locate
from goal.data.images import Dataset, DatasetSpec, DataSettings
from goal.data.listing import class_folders, collect, image_files, lines_of, require_unique

HAPPY = "happy"
ALL_CLASSES = 1000
CHOSEN_CLASSES = 100

SOURCE = Source(
    title="ImageNet (ILSVRC 2012)",
    folder="imagenet",
    files=("train", "val"),
    url="https://www.image-net.org/download.php",
)


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """List the images of the chosen classes; class ids follow the sorted wnids."""
    folder = locate(SOURCE, settings, reporter)
    wnids = choose(class_folders(folder / "train"), settings.class_list)
    for split in ("train", "val"):
        absent = sorted(set(wnids) - set(class_folders(folder / split)))
        if absent:
            raise GoalError(
                f"{folder / split} lacks the class folder {absent[0]} ({len(absent)} of "
                f"{len(wnids)} are missing). Sort the images into one folder per wnid."
            )
    train, test = (
        {label: image_files(folder / split / wnid) for label, wnid in enumerate(wnids)}
        for split in ("train", "val")
    )
    return Dataset(
        name="imagenet100", class_names=tuple(wnids), train=collect(train), test=collect(test)
    )


def choose(available: list[str], class_list: str) -> list[str]:
    """Return the wnids of `class_list`, sorted: ``happy``, or those in a file, one per line."""
    if class_list == HAPPY:
        if len(available) != ALL_CLASSES:
            raise GoalError(
                f"The class list '{HAPPY}' is drawn from all {ALL_CLASSES} class folders of "
                f"ImageNet, but train holds {len(available)}. Add the others, or write the wnids "
                "you want to a file, one per line, and give its path as class_list."
            )
        return [available[index] for index in happy_indices()]
    path = Path(class_list).expanduser()
    if not path.is_file():
        raise GoalError(
            f"class_list is '{class_list}', which is neither '{HAPPY}' nor a file of wnids."
        )
    wnids = lines_of(path)
    if not wnids:
        raise GoalError(f"The class list {path} is empty: write one wnid per line.")
    require_unique(wnids, path)
    return sorted(wnids)


def happy_indices() -> list[int]:
    """Positions, among the sorted wnids, of the 100 classes that Happy's authors drew."""
    # The legacy generator is needed to draw the published classes; it is a private instance.
    draw = np.random.RandomState(0).choice(ALL_CLASSES, CHOSEN_CLASSES, replace=False)
    return [int(index) for index in np.sort(draw)]


SPEC = DatasetSpec(
    summary="ImageNet-100, 100 classes, about 1,270 training images each; needs ImageNet on disk",
    load=load,
    defaults={
        "protocol": {
            "base_classes": 50,
            "stages": 5,
            "unlabelled_new": 1000,
            "unlabelled_base": 60,
            "unlabelled_discovered": 60,
        }
    },
)
