"""A model as a page: its classes, and pictures of those it discovered."""

import base64
import binascii
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from goal.data.decoding import UnreadableImage, decode
from goal.data.own_images import ImageSet
from goal.evaluation.chosen import MAX_CLASSES, PER_ROW, evenly
from goal.models.classes import KnownClass, Roster
from goal.models.predictions import Predictions
from goal.models.store import StageRecord, Store
from goal.pages.galleries import Card, Picture, gallery_data, thumbnail
from goal.pages.html import render
from goal.storage import files
from goal.storage.seal import seal_page

_ROWS = {"most": "most confident", "least": "least confident"}


def pictures(given: ImageSet, predictions: Predictions, first: int) -> dict[str, Any]:
    """Thumbnails of the new classes (ids from `first` on) as plain data for ``gallery.json``."""
    order = np.argsort(-predictions.confidence, kind="stable")
    new = np.unique(predictions.ids[predictions.ids >= first])
    classes: dict[str, Any] = {}
    thumbnails: dict[str, str] = {}
    for id in evenly(new, MAX_CLASSES).tolist():
        members = order[predictions.ids[order] == id]
        chosen = {"most": members[:PER_ROW], "least": members[PER_ROW:][::-1][:PER_ROW]}
        classes[str(id)] = {
            row: [[str(index), _caption(predictions, index)] for index in positions.tolist()]
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
    import pyarrow.parquet

    folder = store.path(record.step)
    stored = files.read_json(folder / "gallery.json")
    with (folder / "predictions.parquet").open("rb") as stream:
        names = pyarrow.parquet.read_table(stream, columns=["file"])["file"].to_pylist()
    found: dict[str, list[Image.Image]] = {}
    for key, rows in stored["classes"].items():
        found[key] = []
        for index, _ in rows["most"]:
            try:
                found[key].append(decode(Path(names[int(index)])))
            except UnreadableImage:  # moved since, or never a file
                thumb = binascii.a2b_base64(stored["thumbnails"][index])
                found[key].append(Image.open(io.BytesIO(thumb)))
    return found


def _caption(predictions: Predictions, index: int) -> str:
    name = Path(predictions.names[index]).name
    return f"{name} ({100 * predictions.confidence[index]:.0f}%)"


def write_page(store: Store, records: Sequence[StageRecord], roster: Roster) -> Path:
    """Write the model's page anew; return its path."""
    path = store.folder / "report.html"
    files.write_text(path, seal_page(_page(store, records, roster)))
    return path


def _page(store: Store, records: Sequence[StageRecord], roster: Roster) -> str:
    classes = roster.classes()
    labelled = sum(known.stage == 0 for known in classes)
    return render(
        "model.html",
        title=f"{store.folder.resolve().name}: {len(classes)} classes",
        labelled=labelled,
        discovered=len(classes) - labelled,
        stages=[_stage_row(record) for record in records],
        classes=[_class_row(known, roster) for known in classes],
        galleries=[
            {"stage": record.index, "content": _gallery(store, record, roster)}
            for record in reversed(records)
            if record.kind == "discover"
        ],
    )


def _stage_row(record: StageRecord) -> tuple[object, ...]:
    counts = (record.images, record.skipped, len(record.names))
    return (record.index, record.kind, record.created, *counts)


def _class_row(known: KnownClass, roster: Roster) -> tuple[object, ...]:
    return (
        known.name,
        known.id,
        known.size,
        "labels" if known.stage == 0 else f"stage {known.stage}",
        "" if known.vertex is None else known.vertex,
        ", ".join(roster.names[id] for id in known.merged),
    )


def _gallery(store: Store, record: StageRecord, roster: Roster) -> dict[str, Any]:
    """Pictures of a stage's classes, under the names they have now."""
    stored = files.read_json(store.path(record.step) / "gallery.json")
    cards = []
    for key, rows in stored["classes"].items():
        known = roster.known(roster.owner[int(key)])
        shown = {
            _ROWS[row]: [Picture(index, caption) for index, caption in listed]
            for row, listed in rows.items()
            if listed
        }
        cards.append(Card(known.name, f"{record.sizes.get(key, 0)} images", shown))
    thumbnails = {key: binascii.a2b_base64(text) for key, text in stored["thumbnails"].items()}
    return gallery_data(cards, thumbnails)
