"""Errors meant for the person at the keyboard: what was given, what was expected, what to do."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

Entry = TypeVar("Entry")


class GoalError(Exception):
    """A mistake the user can mend; the command line prints its text and exits non-zero."""


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """Return ``' Did you mean 'X'?'`` for the choice nearest to `given`, or an empty string."""
    near = get_close_matches(given, list(choices), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def pick(registry: Mapping[str, Entry], name: str, kind: str) -> Entry:
    """Return ``registry[name]``, or raise an error that names the nearest entry and lists all."""
    if name not in registry:
        raise GoalError(
            f"Unknown {kind} '{name}'.{did_you_mean(name, registry)} "
            f"Choose one of: {', '.join(sorted(registry))}."
        )
    return registry[name]
