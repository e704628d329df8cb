"""What to decide first: new classes that nobody has looked at, the ones that settle most ahead."""

from collections.abc import Collection, Iterable
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


def inbox(
    roster: Roster,
    listing: Listing,
    decided: Collection[int],
    alike: Iterable[tuple[int, int]] = (),
) -> list[Card]:
    """A card for every discovered class that is not decided, largest first.

    Behind it comes one that asks whether it is the same as the class nearest to it, where they may
    be one (`alike`: pairs, nearest first).
    """
    counts = listing.counts()
    found = [
        known
        for known in roster.classes()
        if known.stage > 0 and known.id not in decided and counts.get(known.id, 0)
    ]
    found.sort(key=lambda known: (-counts[known.id], known.id))
    pairs = [sorted(pair) for pair in alike if all(counts.get(id, 0) for id in pair)]
    cards: list[Card] = []
    for known in found:
        cards.append(Card("class", [known.id], _why(counts[known.id], known.stage)))
        nearest = next((pair for pair in pairs if known.id in pair), None)
        if nearest is not None and all(card.classes != nearest for card in cards):
            cards.append(Card("pair", nearest, "These may be one class."))
    return cards


def _why(images: int, stage: int) -> str:
    shown = "1 image" if images == 1 else f"{images:,} images"
    return f"{shown}, found at stage {stage}"
