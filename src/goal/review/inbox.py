"""What to decide first: new classes that nobody has looked at, the ones that settle most ahead."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from goal.models.classes import Roster
from goal.review.listing import Listing


@dataclass(frozen=True)
class Card:
    """A question to a person.

    Attributes:
        kind: ``class`` (is this one, and what is it?) or ``pair`` (are these two one?).
        classes: Ids of the classes it is about.
        why: What a decision would settle.
    """

    kind: str
    classes: list[int]
    why: str

    def plain(self) -> dict[str, Any]:
        """It as plain data."""
        return {"kind": self.kind, "classes": self.classes, "why": self.why}


def inbox(roster: Roster, listing: Listing, decided: Collection[int]) -> list[Card]:
    """A card for every discovered class that is not decided, largest first."""
    counts = listing.counts()
    found = [
        known
        for known in roster.classes()
        if known.stage > 0 and known.id not in decided and counts.get(known.id, 0)
    ]
    found.sort(key=lambda known: (-counts[known.id], known.id))
    return [Card("class", [known.id], _why(counts[known.id], known.stage)) for known in found]


def _why(images: int, stage: int) -> str:
    shown = "1 image" if images == 1 else f"{images:,} images"
    return f"{shown}, found at stage {stage}"
