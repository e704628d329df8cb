"""Between the page and the model: what the page may ask for and do, and nothing else.

Everything that the page changes is one call of a `Model` method. Readers get a `View`: what the
model was at one moment, kept until the folder changes, by whomever.
"""

import hashlib
import io
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.decoding import decode
from goal.data.own_images import gather
from goal.models.classes import Roster
from goal.models.log import JUDGEMENT, LOG
from goal.models.model import Model
from goal.models.nearness import nearness
from goal.models.records import StageRecord
from goal.models.store import Store
from goal.review.actions import Action, available, perform
from goal.review.closeness import Closeness
from goal.review.inbox import Card, inbox
from goal.review.listing import Listing
from goal.review.plane import Plane, plane_of
from goal.review.thumbnails import Thumbnails

MOST_ROWS = 600
_PATIENCE = 20.0  # seconds that a change waits for one from another window
_READING_FEATURES = threading.Lock()
_KEPT = ("_closeness", "plane")  # of a view, as long as the images are the same


class Conflict(GoalError):
    """The model is not what the page shows, or is being changed: nothing was done."""


class Refused(GoalError):
    """The page may only look."""


@dataclass(frozen=True)
class View:
    """A model as it was at one moment."""

    version: str
    records: list[StageRecord]
    roster: Roster
    listing: Listing
    store: Store

    @property
    def closeness(self) -> Closeness | None:
        """Features of the images, if the model keeps them; read once, however many ask."""
        with _READING_FEATURES:
            return self._closeness

    @cached_property
    def _closeness(self) -> Closeness | None:
        return Closeness.of(self.store, self.listing)

    @cached_property
    def plane(self) -> Plane | None:
        """The map, if there are features."""
        return plane_of(self.listing, self.closeness)

    @cached_property
    def cards(self) -> list[Card]:
        """What to decide, first things first."""
        judged = self.roster.judgement
        decided = {*map(int, judged.names), *map(int, judged.made), *judged.confirmed}
        near = nearness(self.store, self.records, self.roster)
        return inbox(self.roster, self.listing, decided, near.pairs() if near else ())

    def ordered(self, id: int, order: str) -> IntArray:
        """Rows of a class: typical images first, or doubtful ones."""
        rows = self.listing.members(id)
        if order == "doubt":
            return rows[np.argsort(self.listing.table.margin[rows], kind="stable")]
        near = self.closeness.to_mean(rows) if self.closeness and len(rows) else None
        value = self.listing.table.confidence[rows] if near is None else near
        return rows[np.argsort(-value, kind="stable")]

    def rows(self, chosen: IntArray) -> list[dict[str, Any]]:
        """Some images as the page shows them."""
        found = self.listing.table
        return [
            {
                "id": found.digests[row].hex(),
                "name": Path(found.files[row]).name,
                "class": int(found.class_id[row]),
                "second": int(found.second_id[row]),
                "sure": round(float(found.confidence[row]), 4),
                "stage": int(found.stage[row]),
                "answered": bool(found.answered[row]),
            }
            for row in chosen.tolist()
        ]


class Desk:
    """What the page works at."""

    def __init__(self, model: Model, thumbnails: Thumbnails, read_only: bool = False) -> None:
        self._model = model
        self._thumbnails = thumbnails
        self.read_only = read_only
        self._view: View | None = None
        self._reading = threading.Lock()
        self._writing = threading.Lock()

    # -- looking ----------------------------------------------------------------------------------

    def version(self) -> str:
        """What tells the model as it is now from what it was; an error if it is not there."""
        store = self._model.store
        steps = sorted(store.stages.glob("[0-9]*/stage.json")) if store.stages.is_dir() else []
        if not steps:
            raise GoalError(
                f"There is no model in {file_name(store.folder)} any more. Put it back, and this "
                "page goes on by itself."
            )
        logs = [store.folder / name for name in (LOG, JUDGEMENT)]
        return hashlib.sha256(repr([_facts(path) for path in logs + steps]).encode()).hexdigest()[
            :16
        ]

    def view(self) -> View:
        """The model as it is now."""
        now = self.version()
        with self._reading:
            if self._view is None or self._view.version != now:
                self._view = self._read(now, self._view)
            return self._view

    def _read(self, now: str, before: View | None) -> View:
        model = self._model
        view = View(now, model.records, model.roster, Listing(model.table()), model.store)
        if before is not None and before.listing.digests == view.listing.digests:
            vars(view).update({key: vars(before)[key] for key in _KEPT if key in vars(before)})
        return view

    def warm(self) -> None:
        """Read what the first screens need, while the browser is still opening."""
        with suppress(GoalError, OSError):
            _ = self.view().plane

    def state(self) -> dict[str, Any]:
        """What every screen needs: classes, what is to be decided, what can be done."""
        view = self.view()
        counts = view.listing.counts()
        entries = self._entries()
        return {
            "version": view.version,
            "name": self._model.store.folder.resolve().name,
            "read_only": self.read_only,
            "can": [] if self.read_only else available(self._model),
            "classes": [_class(view, id, counts.get(id, 0)) for id in view.roster.ids()],
            "unknown": counts.get(-1, 0),
            "images": len(view.listing),
            "stage": view.roster.latest,
            "inbox": [card.plain() for card in view.cards],
            "last": next((e["said"] for e in reversed(entries) if e["undoable"]), None),
        }

    def window(self, id: int, order: str, start: int, count: int) -> dict[str, Any]:
        """Some images of a class in an order."""
        view = self.view()
        rows, most = view.ordered(id, order), min(max(count, 0), MOST_ROWS)
        part = rows[max(start, 0) :][:most]
        if order == "ends":  # the most typical ones, then the least
            half = most // 2
            part = np.concatenate([rows[:half], rows[half:][::-1][:half]])
        return {"version": view.version, "total": len(rows), "rows": view.rows(part)}

    def members(self, id: int) -> dict[str, Any]:
        """All images of a class, to be selected."""
        view = self.view()
        digests = [view.listing.digests[row].hex() for row in view.listing.members(id).tolist()]
        return {"version": view.version, "ids": digests}

    def compared(self, first: int, second: int, count: int) -> dict[str, Any]:
        """Two classes: typical images of each, and those between them."""
        view = self.view()
        ours, theirs = view.ordered(first, "typical"), view.ordered(second, "typical")
        most = min(max(count, 1), MOST_ROWS)
        middle = ours[:0]
        if view.closeness and len(ours) and len(theirs):
            middle = view.closeness.between(ours, theirs, most)
        return {
            "version": view.version,
            "first": view.rows(ours[:most]),
            "second": view.rows(theirs[:most]),
            "between": view.rows(middle),
        }

    def map(self) -> dict[str, Any]:
        """Images on a plane."""
        view = self.view()
        return {} if view.plane is None else view.plane.plain(view.listing)

    def picture(self, key: str, large: bool) -> bytes | None:
        """An image that the model learned, small or large."""
        view = self.view()
        try:
            row = view.listing.row_of.get(bytes.fromhex(key))
        except ValueError:
            return None
        if row is None:
            return None
        place, digest = view.listing.place(row), view.listing.digests[row]
        if large:
            return self._thumbnails.large(place, digest)
        return self._thumbnails.small(view.listing.table.files[row], place, digest, view.records)

    def similar(self, key: str, count: int) -> dict[str, Any]:
        """The images most like one of them."""
        view = self.view()
        row = view.listing.row_of.get(bytes.fromhex(key))
        if row is None:
            raise GoalError("The model has not learned this image.")
        return self._nearest(view, _features(view).unit(np.array([row]))[0], count)

    def search(self, content: bytes, count: int) -> dict[str, Any]:
        """The images most like a picture, and the class that it would get."""
        view = self.view()
        held = _features(view)
        given = gather([decode(io.BytesIO(content))], self._model.reporter)
        seen, probabilities, _ = self._model.look(given)
        best = int(probabilities[0].argmax())
        found = self._nearest(view, seen[0].numpy().astype(np.float32), count)
        return {
            **found,
            "class": view.roster.ids()[best],
            "sure": round(float(probabilities[0, best]), 4),
            "features": len(view.listing) if held else 0,
        }

    def _nearest(self, view: View, feature: Any, count: int) -> dict[str, Any]:
        near = _features(view).to(feature)
        rows = np.argsort(-near, kind="stable")[: min(max(count, 1), MOST_ROWS)]
        shown = view.rows(rows)
        for row, cosine in zip(shown, near[rows].tolist(), strict=True):
            row["cosine"] = round(cosine, 4)
        return {"version": view.version, "rows": shown}

    def history(self) -> dict[str, Any]:
        """Everything that was done, the last thing first."""
        return {"version": self.version(), "entries": self._entries()[::-1]}

    def _entries(self) -> list[dict[str, Any]]:
        entries = self._model.history()
        return [
            {
                **entry._asdict(),
                "undoable": not entry.undone
                and entry.kind not in ("undo", "redo")
                and entry.id != entries[0].id,
            }
            for entry in entries
        ]

    # -- changing ---------------------------------------------------------------------------------

    def act(self, wanted: Action) -> dict[str, Any]:
        """Do what the page asks for; return what was done and the model as it is afterwards."""
        if self.read_only:
            raise Refused("This page only looks: `goal review` was started with --read-only.")
        if not self._writing.acquire(timeout=_PATIENCE):
            raise Conflict("Another window is changing the model. Nothing was done; try again.")
        try:
            view = self.view()
            if wanted.version != view.version:
                raise Conflict(
                    "The model has changed since this page was drawn, by another window or on "
                    "the command line. Nothing was done: look, and do it again."
                )
            perform(self._model, view.roster, wanted)
            return {"done": self._entries()[-1]["said"], "state": self.state()}
        finally:
            self._writing.release()


def _features(view: View) -> Closeness:
    if view.closeness is None:
        raise GoalError(
            "The model keeps no features of its images, so none can be compared. Models of the "
            "method goal-plus, learned from images, keep them."
        )
    return view.closeness


def _class(view: View, id: int, size: int) -> dict[str, Any]:
    known = view.roster.known(id)
    return {
        "id": id,
        "name": known.name,
        "stage": known.stage,
        "size": size,
        "merged": [{"id": other, "name": view.roster.names[other]} for other in known.merged],
        "confirmed": id in view.roster.judgement.confirmed,
    }


def _facts(path: Path) -> tuple[str, int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return path.name, 0, 0, 0
    return path.name, now.st_ino, now.st_size, now.st_mtime_ns
