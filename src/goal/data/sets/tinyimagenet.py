"""TinyImageNet: 200 classes of ImageNet at 64 x 64 pixels; the official val set is the test set."""

from pathlib import Path

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.fetching import Source, locate
from goal.data.images import Dataset, DatasetSpec, DataSettings, FileImages
from goal.data.listing import collect, image_files, lines_of, require_unique

SOURCE = Source(
    title="TinyImageNet",
    folder="tiny-imagenet-200",
    files=("wnids.txt", "words.txt", "train", "val/images", "val/val_annotations.txt"),
    url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
)


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """List the official files; class ids follow the sorted wnids."""
    folder = locate(SOURCE, settings, reporter)
    wnids = sorted(lines_of(folder / "wnids.txt"))
    if not wnids:
        raise GoalError(f"{folder / 'wnids.txt'} lists no classes.")
    require_unique(wnids, folder / "wnids.txt")
    train = {
        label: image_files(folder / "train" / wnid / "images") for label, wnid in enumerate(wnids)
    }
    return Dataset(
        name="tinyimagenet",
        class_names=class_names(wnids, folder / "words.txt"),
        train=collect(train),
        test=_official_val(folder / "val", wnids),
    )


def class_names(wnids: list[str], words: Path) -> tuple[str, ...]:
    """Give each wnid the first word it has in `words`; where two would be alike, add the wnid."""
    table = dict(line.split("\t", 1) for line in lines_of(words) if "\t" in line)
    first = [table.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    return tuple(
        f"{name} ({wnid})" if first.count(name) > 1 else name
        for name, wnid in zip(first, wnids, strict=True)
    )


def _official_val(folder: Path, wnids: list[str]) -> FileImages:
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    path_of = {path.name: path for path in image_files(folder / "images")}
    annotations = folder / "val_annotations.txt"
    paths: dict[int, list[Path]] = {label: [] for label in range(len(wnids))}
    listed = []
    for line in lines_of(annotations):
        name, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in label_of:
            raise GoalError(f"{annotations}: image {name!r} has the unknown class {wnid!r}.")
        if name not in path_of:
            raise GoalError(f"{annotations} lists {name!r}, which {folder / 'images'} lacks.")
        paths[label_of[wnid]].append(path_of[name])
        listed.append(name)
    require_unique(listed, annotations)
    return collect(paths)


SPEC = DatasetSpec(
    summary="TinyImageNet, 200 classes, 64 x 64 pixels, 500 training images each",
    load=load,
    defaults={
        "protocol": {
            "base_classes": 100,
            "stages": 5,
            "unlabelled_new": 400,
            "unlabelled_base": 25,
            "unlabelled_discovered": 25,
        }
    },
)
