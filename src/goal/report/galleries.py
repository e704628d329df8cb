"""Galleries of thumbnails: which images to show of each class, and the HTML that shows them.

Knows nothing of run folders. A page needs three calls: `thumbnail` for every image, `gallery_html`
for the cards, and `goal.report.html.document` with ``galleries.css`` and ``galleries.js``, which
makes the pictures when they come into view.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from goal.report.html import json_script

SIDE = 64  # pixels of a thumbnail's longer side
PER_ROW = 6
MAX_CLASSES = 200
_PIXEL_ART = 16  # images up to this size are kept pixel by pixel

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Picture:
    """A thumbnail's key among the thumbnails of the page, and what is written under it."""

    key: str
    caption: str


@dataclass(frozen=True)
class Card:
    """A class of a gallery: its rows are pictures under a heading such as "most confident"."""

    title: str
    note: str
    rows: Mapping[str, Sequence[Picture]]


def thumbnail(image: Image.Image, side: int = SIDE) -> bytes:
    """Encode an image as a small WebP of at most `side` pixels; small ones are never enlarged."""
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=80, lossless=max(small.size) <= _PIXEL_ART, method=4)
    return buffer.getvalue()


def data_uri(webp: bytes) -> str:
    """Turn a thumbnail into text that a page can hold."""
    return "data:image/webp;base64," + base64.b64encode(webp).decode()


def gallery_html(cards: Sequence[Card], thumbnails: Mapping[str, bytes], name: str) -> str:
    """Build a gallery that ``galleries.js`` fills as it is scrolled to.

    Args:
        cards: One per class, in order. Pictures without a thumbnail show their caption alone.
        thumbnails: Encoded thumbnails by key.
        name: Identity of the gallery on its page, such as "found-classes".
    """
    content = {
        "cards": [card_data(card) for card in cards],
        "thumbnails": {key: data_uri(webp) for key, webp in thumbnails.items()},
    }
    return f"<div class='gallery' data-gallery='{name}'></div>{json_script(name, content)}"


def card_data(card: Card) -> dict[str, Any]:
    """Return a card as plain data, the way ``galleries.js`` reads it."""
    rows = {
        label: [[picture.key, picture.caption] for picture in pictures]
        for label, pictures in card.rows.items()
    }
    return {"title": card.title, "note": card.note, "rows": rows}


@dataclass(frozen=True)
class Choice:
    """Positions of the images to show of one predicted class.

    Attributes:
        predicted: The predicted class.
        size: Images predicted to be of it.
        wrong: How many of them truly are of another class.
        most, least, mistaken: Positions, most confident first but for `least`.
    """

    predicted: int
    size: int
    wrong: int
    most: IntArray
    least: IntArray
    mistaken: IntArray


def choose(
    predictions: IntArray,
    truth: IntArray,
    owner: IntArray,
    confidence: npt.NDArray[np.floating[Any]],
    num_base: int,
) -> list[Choice]:
    """Choose images of every discovered class: sure ones, unsure ones, and mistakes.

    A predicted class is discovered if no base class matches it. Of more than `MAX_CLASSES`, so
    many are taken, evenly spread.

    Args:
        predictions: Predicted class of each image, (N,).
        truth: True class of each image, (N,).
        owner: True class that matches each predicted class, -1 for none, (K,).
        confidence: How sure the method is of each image, (N,).
        num_base: Base classes.
    """
    found = np.flatnonzero((owner >= num_base) | (owner < 0))
    order = np.argsort(-confidence, kind="stable")
    choices = []
    for predicted in spread_out(found, MAX_CLASSES).tolist():
        members = order[predictions[order] == predicted]
        wrong = members[truth[members] != owner[predicted]]
        rest = members[PER_ROW:]
        choices.append(
            Choice(
                predicted,
                len(members),
                len(wrong),
                members[:PER_ROW],
                rest[::-1][:PER_ROW],
                wrong[:PER_ROW],
            )
        )
    return choices


def spread_out(items: IntArray, limit: int) -> IntArray:
    """Return at most `limit` of the items, evenly spread, first and last among them."""
    if len(items) <= limit:
        return items
    return items[np.linspace(0, len(items) - 1, limit).round().astype(np.int64)]
