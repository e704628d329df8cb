"""Predictions in the public formats of other tools: FiftyOne, COCO and Label Studio.

Images are named by path and never copied: relative to a folder where one is given, which the other
tool must be told, and absolute otherwise. Names are those of the tables of
`goal.models.predictions`, in which characters that would steer a terminal are spelt out.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from goal.common.errors import GoalError, pick
from goal.common.escaping import file_name
from goal.models.classes import Roster
from goal.models.predictions import NONE, Predictions
from goal.storage import files

_LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves files of its own machine


def fiftyone(found: Predictions, root: Path | None = None) -> dict[str, Any]:
    """Labels of a `FiftyOneImageClassificationDataset`, as its ``labels.json``.

    An image of no class has no label.

    Args:
        found: Predictions of image files.
        root: The folder given to FiftyOne as ``data_path``; it names files below it without their
            suffix. Without one, paths are absolute, and FiftyOne needs no ``data_path``.
    """
    table = found.columns()
    place = {id: index for index, id in enumerate(found.roster.ids())}
    rows = zip(found.ids.tolist(), table["confidence"], table["new"], table["stage"], strict=True)
    targets = [
        {"label": place[id], "confidence": sure, "attributes": {"new": new, "stage": stage}}
        if id in place
        else None  # of no class
        for id, sure, new, stage in rows
    ]
    return {
        "classes": [known.name for known in found.roster.classes()],
        "labels": dict(zip(_uuids(found.names, root), targets, strict=True)),
    }


def coco(found: Predictions, root: Path | None = None) -> dict[str, Any]:
    """A manifest in the manner of COCO: images, categories, and one annotation per image.

    A category's id is the id of the class, which never changes; its supercategory says whether the
    class is base or novel. Annotations have a score and no box: they are about the whole image. An
    image of no class has none.

    Args:
        found: Predictions of image files.
        root: The folder that ``file_name`` is relative to.
    """
    paths = [_path(name, root).as_posix() for name in found.names]
    numbers = range(1, len(paths) + 1)
    return {
        "images": [
            {"id": number, "file_name": path} for number, path in zip(numbers, paths, strict=True)
        ],
        "categories": [
            {
                "id": known.id,
                "name": known.name,
                "supercategory": "novel" if known.stage else "base",
            }
            for known in found.roster.classes()
        ],
        "annotations": [
            {"id": number, "image_id": number, "category_id": id, "score": score}
            for number, id, score in zip(
                numbers, found.ids.tolist(), found.columns()["confidence"], strict=True
            )
            if id != NONE
        ],
    }


def label_studio(found: Predictions, root: Path | None = None) -> list[dict[str, Any]]:
    """Tasks for Label Studio with a prediction each, under `label_studio_config`.

    An image of no class comes without a prediction.

    Args:
        found: Predictions of image files.
        root: Label Studio's ``LOCAL_FILES_DOCUMENT_ROOT``; the root of the file system if none.
    """
    table = found.columns()
    known = (~found.unknown).tolist()
    rows = zip(found.names, table["class"], table["confidence"], known, strict=True)
    version = f"stage {found.latest}"
    return [
        {
            "data": {"image": _LOCAL_FILES + quote(_served(_path(name, root)))},
            "predictions": [
                {
                    "model_version": version,
                    "score": score,
                    "result": [
                        {
                            "id": f"goal-{number}",
                            "type": "choices",
                            "from_name": "class",
                            "to_name": "image",
                            "value": {"choices": [chosen]},
                        }
                    ],
                }
            ][:is_known],
        }
        for number, (name, chosen, score, is_known) in enumerate(rows, start=1)
    ]


def label_studio_config(roster: Roster) -> str:
    """The labelling configuration that the tasks of `label_studio` belong to."""
    choices = "".join(
        f"    <Choice value={quoteattr(known.name)}/>\n" for known in roster.classes()
    )
    return (
        '<View>\n  <Image name="image" value="$image"/>\n'
        f'  <Choices name="class" toName="image" choice="single">\n{choices}  </Choices>\n</View>\n'
    )


MANIFESTS: Mapping[str, Callable[[Predictions, Path | None], Any]] = {
    "fiftyone": fiftyone,
    "coco": coco,
    "label-studio": label_studio,
}


def write_manifest(found: Predictions, path: Path, kind: str, root: Path | None = None) -> None:
    """Write predictions as JSON of one of the `MANIFESTS`."""
    content = pick(MANIFESTS, kind, "format")(found, root)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GoalError(f"Cannot write {file_name(path)}: {error}") from error
    files.write_text(path, text)


def _uuids(names: Sequence[str], root: Path | None) -> list[str]:
    """What FiftyOne calls images: absolute paths, or relative ones without their suffix."""
    paths = [_path(name, root) for name in names]
    if root is not None:
        paths = [path.with_suffix("") for path in paths]
    keys = [path.as_posix() for path in paths]
    owner: dict[str, str] = {}
    for key, name in zip(keys, names, strict=True):
        if owner.setdefault(key, name) != name and root is not None:
            raise GoalError(
                f"FiftyOne would take {owner[key]} and {name} for one image: below a folder it "
                "ignores suffixes. Rename one of them, or give no folder."
            )
    return keys


def _path(name: str, root: Path | None) -> PurePath:
    """Path of an image: absolute, or relative to a folder that it must lie in."""
    whole = PurePath(os.path.normpath(Path(name).absolute()))
    if root is None:
        return whole
    folder = PurePath(os.path.normpath(root.absolute()))
    if not whole.is_relative_to(folder):
        raise GoalError(
            f"{name} does not lie in {file_name(root)}. Give a folder that holds all the images."
        )
    return whole.relative_to(folder)


def _served(path: PurePath) -> str:
    return path.relative_to(path.anchor).as_posix()
