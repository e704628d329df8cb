"""What stands on a decision, so that it cannot be taken back alone."""

from collections import Counter
from collections.abc import Sequence

from goal.common.errors import GoalError
from goal.models.classes import Roster
from goal.models.history import Action, History
from goal.models.records import StageRecord


def require_alone(
    history: History, action: Action, first: int | None, records: Sequence[StageRecord]
) -> None:
    """Raise an error that names the later actions which must be taken back before this one.

    Args:
        history: Everything that was done.
        action: What is to be taken back.
        first: Classes from this id on were found by the step it made.
        records: The steps.
    """
    later = history.standing_on(action, first) or _same_name(history, action, records)
    if later:
        listed = ", ".join(f"{other.id} ({other.said})" for other in later)
        raise GoalError(f"Later actions stand on {action.said}. Take them back first: {listed}.")


def _same_name(history: History, action: Action, records: Sequence[StageRecord]) -> list[Action]:
    """Later actions that gave a name which a class would have again."""
    left = history.done(Action(kind="undo", said="", of=[action.id]))
    names = Counter(Roster(records, left.judgement).every_name())
    twice = {name for name, count in names.items() if count > 1}
    return [
        other
        for other in history.holding
        if other.id > action.id and twice & {other.name, *other.made.values()}
    ]
