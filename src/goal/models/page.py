"""A model as a page: its classes with pictures of each, its stages, and what to do next."""

import base64
import hashlib
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from goal import __version__
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.data.decoding import UnreadableImage, decode
from goal.data.own_images import ImageSet
from goal.evaluation.chosen import MAX_CLASSES, PER_ROW, evenly
from goal.models.classes import KnownClass, Roster
from goal.models.gallery import Gallery, Row, read_gallery
from goal.models.nearness import drawing, nearness
from goal.models.predictions import Predictions
from goal.models.records import PAGE
from goal.models.store import StageRecord, Store
from goal.pages.galleries import Card, Picture, gallery_data, thumbnail
from goal.pages.html import render
from goal.storage import files
from goal.storage.seal import seal_page
from goal.storage.tables import read_columns

_ROWS = {"most": "most confident", "least": "least confident"}
_KINDS = {"fit": "learned from labels", "discover": "discovered", "extend": "vertices added"}
_STATE = "<meta name='goal-state' content='{}'>"
_NO_ROWS: tuple[int, Mapping[Row, list[list[str]]]] = (0, {})
_HEAD = 4096  # bytes of a page within which its state stands


def pictures(
    given: ImageSet, predictions: Predictions, first: int, labels: IntArray | None = None
) -> dict[str, Any]:
    """Thumbnails of a stage's classes as plain data for ``gallery.json``.

    Args:
        given: The images of the stage.
        predictions: What the model makes of them.
        first: Id of the stage's first class.
        labels: Their classes, where a person gave them.
    """
    ids = predictions.ids if labels is None else labels
    agreed = predictions.ids == ids
    order = np.argsort(-np.where(agreed, predictions.confidence, -1), kind="stable")
    classes: dict[str, Any] = {}
    thumbnails: dict[str, str] = {}
    for id in evenly(np.unique(ids[ids >= first]), MAX_CLASSES).tolist():
        members = order[ids[order] == id]
        chosen = {"most": members[:PER_ROW], "least": members[PER_ROW:][::-1][:PER_ROW]}
        classes[str(id)] = {
            row: [
                [str(index), _caption(predictions, index, bool(agreed[index]))]
                for index in positions.tolist()
            ]
            for row, positions in chosen.items()
        }
        for index in np.concatenate(list(chosen.values())).tolist():
            if (encoded := _thumbnail(given, index)) is not None:
                thumbnails[str(index)] = base64.b64encode(encoded).decode()
    return {"classes": classes, "thumbnails": thumbnails}


def _thumbnail(given: ImageSet, index: int) -> bytes | None:
    """A thumbnail; None for a file that can no longer be read, whose caption is shown alone."""
    try:
        return thumbnail(given.images.image(index))
    except UnreadableImage:
        return None


def stage_pictures(store: Store, record: StageRecord) -> dict[str, list[Image.Image]]:
    """The most confident images of a stage's classes, by class id."""
    folder = store.path(record.step)
    stored = read_gallery(folder)
    names = read_columns(folder / "predictions.parquet", ["file"])["file"].to_pylist()
    found: dict[str, list[Image.Image]] = {}
    for key, rows in stored.classes.items():
        shown = [_shown(stored, names, index) for index, _ in rows.get("most", [])]
        found[key] = [image for image in shown if image is not None]
    return found


def _shown(stored: Gallery, names: Sequence[str | None], index: str) -> Image.Image | None:
    """An image of a gallery: its file; or its thumbnail, if it has moved or never was a file."""
    name = names[int(index)] if int(index) < len(names) else None
    with suppress(UnreadableImage):
        if name is not None:
            return decode(Path(name))
    with suppress(UnreadableImage):
        if (thumb := stored.thumbnail(index)) is not None:
            return decode(io.BytesIO(thumb))
    return None


def _caption(predictions: Predictions, index: int, agreed: bool) -> str:
    """The file, and how sure the model is; or that it disagrees with a person's label."""
    sure = f"{100 * predictions.confidence[index]:.0f}%" if agreed else "taken for another class"
    return f"{Path(predictions.names[index]).name} ({sure})"


def write_page(
    store: Store, records: Sequence[StageRecord], roster: Roster, out: Path | None = None
) -> Path:
    """Write the model's page anew; return its path.

    Args:
        store: The model folder.
        records: Its finished steps.
        roster: Its classes.
        out: Where to, if not into the model folder.
    """
    path = store.folder / PAGE if out is None else out
    model, place = store.folder.resolve(), path.resolve()
    if place.is_relative_to(model) and place != model / PAGE:
        raise GoalError(
            f"{file_name(path)} is inside the model folder. Choose another place, or leave it out."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, seal_page(_page(store, records, roster)))
    return path


def page_is_current(store: Store, records: Sequence[StageRecord], roster: Roster) -> bool:
    """Whether the model's page shows these steps and corrections, drawn by this version."""
    path = store.folder / PAGE
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    return _STATE.format(state_of(store, records, roster)).encode() in head


def state_of(store: Store, records: Sequence[StageRecord], roster: Roster) -> str:
    """Identity of what a page shows, by content."""
    shown = [
        __version__,
        store.folder.resolve().name,
        [record.model_dump(mode="json") for record in records],
        roster.judgement.model_dump(mode="json"),
        [known.size for known in roster.classes()],
    ]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _page(store: Store, records: Sequence[StageRecord], roster: Roster) -> str:
    classes = roster.classes()
    labelled = [known for known in classes if known.stage == 0]
    discovered = [known for known in classes if known.stage > 0]
    shelf = _Shelf(store, records, roster)
    near = nearness(store, records, roster)
    return render(
        "model.html",
        state=state_of(store, records, roster),
        name=store.folder.resolve().name,
        labelled=_counted(len(labelled), "class", "classes"),
        discovered=_counted(len(discovered), "class", "classes"),
        images=_counted(sum(known.size for known in classes), "image", "images"),
        updated=_when(records[-1].created),
        commands=_commands(store.folder, discovered or classes),
        stages=[_stage_row(record) for record in reversed(records)],
        estimates=[
            f"Stage {record.index}: {record.estimate.text()}"
            for record in reversed(records)
            if record.estimate is not None
        ],
        classes=_class_table(classes, roster),
        tree=near and drawing(near),
        alike=near.candidates() if near else [],
        galleries=[
            {"name": name, "title": title, "content": shelf.gallery(part)}
            for name, title, part in (
                ("discovered", "Classes it discovered", discovered[::-1]),
                ("labelled", "Classes learned from labels", labelled),
            )
            if part
        ],
        version=__version__,
    )


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _when(created: str) -> str:
    """A time for people; one that cannot be read is shown as it is."""
    try:
        time = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{time.day} {time:%b %Y, %H:%M} UTC"


def _commands(folder: Path, classes: Sequence[KnownClass]) -> list[dict[str, str]]:
    """What to do next, to copy: names are quoted for a shell and spelt without odd characters."""
    model = f"--model {shlex.quote(visible(str(folder)))}"
    names = [visible(known.name) for known in classes if not known.name.startswith("-")]
    quoted = [shlex.quote(name) for name in names]
    found = [
        ("Learn the next images, and find new classes in them", f"goal discover FOLDER {model}")
    ]
    if quoted:
        found.append(("Give a class its name", f"goal rename {quoted[0]} NAME {model}"))
    if len(quoted) > 1:
        merge = f"goal merge {quoted[0]} {quoted[1]} {model}"
        found.append(("Say that two classes are one", merge))
    found.append(("Tell the class of images", f"goal predict FOLDER {model} --out classes.csv"))
    return [{"purpose": purpose, "text": text} for purpose, text in found]


def _stage_row(record: StageRecord) -> tuple[object, ...]:
    counts = (f"{record.images:,}", f"{record.skipped:,}", len(record.names))
    return (record.index, _KINDS[record.kind], _when(record.created), *counts)


def _class_table(classes: Sequence[KnownClass], roster: Roster) -> dict[str, Any]:
    """Headings and rows about classes; columns that would say nothing are left out."""
    columns: dict[str, list[str]] = {
        "Class": [known.name for known in classes],
        "From": ["labels" if known.stage == 0 else f"stage {known.stage}" for known in classes],
        "Merged into it": [", ".join(roster.names[id] for id in known.merged) for known in classes],
        "Images": [f"{known.size:,}" for known in classes],
        "Id": [str(known.id) for known in classes],
        "Vertex": ["" if known.vertex is None else str(known.vertex) for known in classes],
    }
    said = {heading: texts for heading, texts in columns.items() if any(texts)}
    return {
        "headings": list(said),
        "rows": [[text or "–" for text in row] for row in zip(*said.values(), strict=True)],
        "texts": 2 + ("Merged into it" in said),
    }


class _Shelf:
    """The pictures that the steps kept, under the names that classes have now."""

    def __init__(self, store: Store, records: Sequence[StageRecord], roster: Roster) -> None:
        self._records, self._roster = records, roster
        self._rows: dict[
            int, tuple[int, Mapping[Row, list[list[str]]]]
        ] = {}  # class id: step, rows of pictures
        self._thumbnails: dict[str, bytes] = {}
        for record in records:
            path = store.path(record.step) / "gallery.json"
            if record.kind == "extend" or not path.exists():
                continue
            stored = read_gallery(path.parent)
            self._rows |= {int(key): (record.step, rows) for key, rows in stored.classes.items()}
            self._thumbnails |= {
                f"{record.step}/{key}": thumb
                for key in stored.thumbnails
                if (thumb := stored.thumbnail(key)) is not None
            }

    def gallery(self, classes: Sequence[KnownClass]) -> dict[str, Any]:
        """One card for each class, what was merged into it included."""
        cards = [self._card(known) for known in classes]
        keys = {p.key for card in cards for row in card.rows.values() for p in row}
        thumbnails = {key: self._thumbnails[key] for key in sorted(keys & self._thumbnails.keys())}
        return gallery_data(cards, thumbnails)

    def _card(self, known: KnownClass) -> Card:
        rows: dict[str, list[Picture]] = {}
        for id in (known.id, *known.merged):
            step, stored = self._rows.get(id, _NO_ROWS)
            origin = "" if id == known.id else f", merged from {self._roster.names[id]}"
            for row, listed in stored.items():
                if listed:
                    shown = [Picture(f"{step}/{index}", caption) for index, caption in listed]
                    rows[_ROWS[row] + origin] = shown
        return Card(known.name, self._sizes(known), rows)

    def _sizes(self, known: KnownClass) -> str:
        """How many images it has, in all and by stage."""
        members = {str(id) for id in (known.id, *known.merged)}
        counts = {
            record.index: sum(record.sizes.get(id, 0) for id in members)
            for record in self._records
            if record.kind != "extend"
        }
        parts = [f"{count:,} at stage {index}" for index, count in counts.items() if count]
        total = _counted(known.size, "image", "images")
        return f"{total}: {', '.join(parts)}" if len(parts) > 1 else f"{total}, {_origin(known)}"


def _origin(known: KnownClass) -> str:
    return "with labels" if known.stage == 0 else f"found at stage {known.stage}"
