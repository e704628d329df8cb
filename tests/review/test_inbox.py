"""What the inbox asks: every undecided new class once, and behind it whether it is another one."""

from typing import Any, cast

from goal.models.classes import Roster
from goal.models.history import Judgement
from goal.models.records import StageRecord
from goal.review.inbox import inbox
from goal.review.listing import Listing


class Counted:
    """A listing that knows sizes alone."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self._sizes = sizes

    def counts(self) -> dict[int, int]:
        return self._sizes


def record(kind: str, step: int, names: list[str], known: int) -> StageRecord:
    about: dict[str, Any] = {"created": "", "version": "0", "key": "k", "trunk": "t"}
    about |= {"names": names, "vertices": [None] * len(names), "num_known": known}
    return StageRecord.parse({"kind": kind, "step": step, "index": step, **about})


RECORDS = [record("fit", 0, ["cat", "dog"], 0), record("discover", 1, ["a", "b", "c"], 2)]
LISTING = cast(Listing, Counted({0: 9, 1: 9, 2: 5, 3: 8, 4: 0}))


def asked(decided: set[int], alike: list[tuple[int, int]]) -> list[list[int]]:
    roster = Roster(RECORDS, Judgement())
    return [card.classes for card in inbox(roster, LISTING, decided, alike)]


def test_largest_first_and_nothing_about_empty_or_decided_ones() -> None:
    assert asked(set(), []) == [[3], [2]]
    assert asked({3}, []) == [[2]]


def test_a_pair_is_asked_once_behind_the_class_and_only_of_the_nearest() -> None:
    assert asked(set(), [(3, 2), (1, 3), (1, 2)]) == [[3], [2, 3], [2]]
    assert asked({3}, [(3, 2)]) == [[2], [2, 3]]
    assert asked(set(), [(4, 3), (0, 1), (1, 3)]) == [[3], [1, 3], [2]]
