"""A model in the form in which it is passed on: JSON and safetensors, and no image.

    goal.json           settings, stages, classes with their corrections; sealed
    model.safetensors   the method as it is now, all stages in it
    README.md           what it is and how it was measured (`card`)
    pictures/           small pictures of discovered classes, if they were asked for

What names or shows the images that it learned stays behind, and so do the states of earlier
stages: the copy predicts and discovers as the model does, bit for bit, but does not know images
again that the model had learned, and cannot go back behind the stage that it came with.
"""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import yaml

from goal import __version__
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.section import Section
from goal.models.classes import Roster, class_name
from goal.models.folder import ModelFolder
from goal.models.history import Action, Judgement
from goal.models.predictions import Predictions, skipped_csv
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.settings.plain import read_settings
from goal.settings.settings import compose
from goal.storage import files, tensor_trees
from goal.storage.manifest import MOST_BYTES
from goal.storage.seal import read_sealed, write_sealed

FORMAT = 1
ABOUT = "goal.json"
TENSORS = "model.safetensors"
PICTURES = "pictures"

# Of a stage's record: what goes out, and what stays because it tells of single images or places.
KEPT = frozenset(
    (
        *("format", "kind", "step", "index", "created", "version", "requested", "num_known"),
        *("names", "vertices", "sizes", "images", "skipped", "seen", "repeated", "estimate"),
        *("numbers", "capacity", "free", "trunk", "origin"),
    )
)
PRIVATE = frozenset(("key", "blank", "before", "source", "unsure", "waited", "minded"))
_ADVICE = "Fetch it again."


class Pushed(Section):
    """What ``goal.json`` says."""

    format: int = FORMAT
    version: str
    settings: dict[str, Any]
    stages: list[dict[str, Any]]
    judgement: Judgement
    state: dict[str, Any]

    @property
    def records(self) -> list[StageRecord]:
        """The stages."""
        return [StageRecord.parse({**stage, "key": ""}, "stage") for stage in self.stages]

    @property
    def roster(self) -> Roster:
        """The classes."""
        return Roster(self.records, self.judgement)


def write_pushed(model: ModelFolder, folder: Path, pictures: bool = False) -> Pushed:
    """Write a model to a new folder in the form in which it is passed on.

    Args:
        model: The model.
        folder: The folder.
        pictures: Whether small pictures of the discovered classes go with it.
    """
    records = model.records
    if any(action.kind != "confirm" or action.images for action in model.store.history().teaching):
        raise GoalError(
            "Decisions about single images have taught this model (`goal history`), and what they "
            "taught lies in its features, which are not passed on. Undo them, or pass on the whole "
            "folder."
        )
    content, state = tensor_trees.packed(model.store.state(records[-1].step))
    about = Pushed(
        version=__version__,
        settings=_portable(read_settings(model.store.path(0) / "settings.yaml")),
        stages=[_outgoing(record) for record in records],
        judgement=model.roster.judgement,
        state=state,
    )
    folder.mkdir(parents=True, exist_ok=True)
    files.write_bytes(folder / TENSORS, content)
    write_sealed(folder / ABOUT, about.model_dump(mode="json"))
    if pictures:
        _write_pictures(model.store, records, folder / PICTURES)
    return about


def read_pushed(source: Path) -> Pushed:
    """Read what ``goal.json`` says, which may come from anybody.

    Raises:
        GoalError: There is no such file, or it cannot be right.
    """
    path = source / ABOUT
    if not path.is_file():
        raise GoalError(f"{source} holds no pushed model: it has no {ABOUT}.")
    path = path.resolve()  # the hub's cache keeps files behind links
    about = Pushed.parse(read_sealed(path, FORMAT, _ADVICE), f"content of {path}")
    try:
        roster = about.roster
        named = [*roster.names, *about.judgement.names.values()]
        whole = all(class_name(name) == name for name in named)
        merged = all(roster.owner[owner] == owner for owner in roster.owner)
        steps = [record.step for record in about.records]
    except (GoalError, ValueError, IndexError) as error:
        raise GoalError(f"{path} is damaged: {error}. {_ADVICE}") from error
    if not (whole and merged and steps) or steps != list(range(len(steps))):
        raise GoalError(f"{path} is damaged: its classes or stages do not fit. {_ADVICE}")
    return about


def unpack_model(source: Path, folder: Path) -> None:
    """Make a model folder of a pushed model."""
    about = read_pushed(source)
    path = (source / TENSORS).resolve()
    content = files.read_bytes(path, MOST_BYTES)
    state = tensor_trees.unpacked(content, about.state, path)
    store, records = Store(folder), about.records
    folder.mkdir(parents=True, exist_ok=True)
    with store.writing():
        store.require_empty()
        for record in records:
            last = record.step == records[-1].step
            store.commit(record, _no_images(about, record), state if last else {})
        for action in _corrections(about.roster.judgement):
            store.act(action)


def _corrections(decided: Judgement) -> list[Action]:
    """The actions that names and merges amount to."""
    renamed = [
        Action(kind="rename", said=f"the name {name}", ids=[int(id)], name=name)
        for id, name in decided.names.items()
    ]
    merged = [
        Action(kind="merge", said=f"the merging of class {id}", ids=[int(id)], into=into)
        for id, into in decided.merged.items()
    ]
    confirmed = [
        Action(kind="confirm", said=f"the confirming of class {id}", ids=[id])
        for id in decided.confirmed
    ]
    return renamed + merged + confirmed


def _portable(plain: dict[str, Any]) -> dict[str, Any]:
    """Settings without places of a machine; of a backbone's folder its name."""
    plain = compose(plain).plain()
    name = str(plain["backbone"]["name"])
    if Path(name).is_absolute():
        name = Path(name).name
    return {
        **plain,
        "device": "cpu",
        "data": compose({"data": {"name": "folder"}}).plain()["data"],
        "bank": {**plain["bank"], "folder": None},
        "backbone": {**plain["backbone"], "name": name},
    }


def _outgoing(record: StageRecord) -> dict[str, Any]:
    """What of a stage's record goes out."""
    plain = record.model_dump(mode="json", include=set(KEPT))
    if record.origin is not None and Path(record.origin.backbone).is_absolute():
        plain["origin"]["backbone"] = Path(record.origin.backbone).name
    return plain


def _no_images(about: Pushed, record: StageRecord) -> dict[str, bytes]:
    """The files of a step that tell of its images: empty ones."""
    none: IntArray = np.empty(0, dtype=np.int64)
    empty = Predictions([], none, np.empty(0), about.roster, record.index, [])
    contents = {
        "predictions.csv": empty.csv(),
        "predictions.parquet": _empty_table(about.roster),
        "skipped.csv": skipped_csv([]),
        "gallery.json": json.dumps({"classes": {}, "thumbnails": {}}).encode(),
        "history.jsonl": b"",
    }
    if record.step == 0:
        settings = yaml.safe_dump(_portable(about.settings), sort_keys=False)
        contents["settings.yaml"] = settings.encode()
    return contents


def _empty_table(roster: Roster) -> bytes:
    """A table of predictions without a row, its columns of the kinds that they have with some."""
    one = np.array(roster.ids()[:1], dtype=np.int64)
    row = Predictions(["image"], one, np.ones(1), roster, 0, [])
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(row.columns()).slice(0, 0), buffer)
    return buffer.getvalue()


def _write_pictures(store: Store, records: Sequence[StageRecord], folder: Path) -> None:
    """Write the thumbnails that stand for discovered classes, by class id."""
    folder.mkdir()
    for record in records:
        if record.kind != "discover":
            continue
        store.require_intact(record.step, "gallery.json")
        stored = files.read_json(store.path(record.step) / "gallery.json")
        for id, rows in stored["classes"].items():
            for place, (index, _) in enumerate(rows["most"]):
                if index in stored["thumbnails"]:
                    picture = base64.b64decode(stored["thumbnails"][index])
                    files.write_bytes(folder / f"{int(id)}-{place}.webp", picture)
