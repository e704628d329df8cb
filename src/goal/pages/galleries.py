"""Galleries of thumbnails: pictures of each class, as plain data that a page shows.

Knows nothing of run folders. A page calls `thumbnail` for every image and `gallery_data` for the
cards; its template draws them by ``gallery.html`` and holds ``galleries.css`` and ``galleries.js``,
which makes the pictures when they come into view.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

SIDE = 64  # pixels of a thumbnail's longer side
_PIXEL_ART = 16  # images up to this size are kept pixel by pixel


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


def gallery_data(cards: Sequence[Card], thumbnails: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a gallery as plain data, for ``gallery.html``.

    Args:
        cards: One per class, in order. Pictures without a thumbnail show their caption alone.
        thumbnails: Encoded thumbnails by key.
    """
    return {
        "cards": [card_data(card) for card in cards],
        "thumbnails": {key: data_uri(webp) for key, webp in thumbnails.items()},
    }


def card_data(card: Card) -> dict[str, Any]:
    """Return a card as plain data, the way ``galleries.js`` reads it."""
    rows = {
        label: [[picture.key, picture.caption] for picture in pictures]
        for label, pictures in card.rows.items()
    }
    return {"title": card.title, "note": card.note, "rows": rows}
