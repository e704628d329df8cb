"""What people ask of a model, checked, and what they are told about the images they bring."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.methods.base import Method
from goal.models.piles import Pile, labels_of, stages_of

AUTO = "auto"
OFF = "off"
USUAL = 0.01  # share of known images that may be refused


def requested(n_new: Any) -> int | str:
    """Check how many new classes are asked for; any kind of whole number will do."""
    if isinstance(n_new, str) and n_new == AUTO:
        return AUTO
    try:
        count = 0 if isinstance(n_new, bool | np.bool_) else operator.index(n_new)
    except TypeError:
        count = 0
    if count < 1:
        raise GoalError(
            f"The number of new classes is a whole number from 1, or {AUTO!r}; given: {n_new!r}."
        )
    return count


def require_enough(wanted: int | str, given: ImageSet) -> None:
    """Raise an error unless there are as many images as new classes."""
    if not len(given):
        raise GoalError(f"There is no image to learn from ({len(given.skipped)} skipped).")
    if wanted != AUTO and len(given) < int(wanted):
        raise GoalError(f"{len(given)} images cannot show {wanted} new classes.")


def refusal(share: Any) -> float | None:
    """Check the share of known images that may be refused: a number, or ``off``."""
    if share is None or share == OFF:
        return None
    try:
        wanted = float(share)
    except (TypeError, ValueError):
        wanted = -1.0
    if not 0 < wanted < 1:
        raise GoalError(
            f"The share of known images that may come out as unknown lies between 0 and 1, such as "
            f"0.01, or is {OFF!r}; given: {share!r}."
        )
    return wanted


def require_share(unknown: float | None, method: Method) -> None:
    """Raise an error if images are to be refused by a method that cannot tell strange ones."""
    if unknown is not None and not can_refuse(method):
        raise GoalError(
            "This model cannot tell which images are of no class: only goal-plus can, in its "
            f"frozen forms and fitted by this version. Give --unknown {OFF}, or fit it again."
        )


def can_refuse(method: Method) -> bool:
    """Whether a method can tell which images are far from all classes."""
    return method.strangeness(torch.zeros(0, method.num_classes)) is not None


def require_all_classes(labels: IntArray, names: Sequence[str]) -> None:
    """Raise an error if a labelled class has lost all its images."""
    missing = sorted(set(range(len(names))) - set(labels.tolist()))
    if missing:
        raise GoalError(f"No image of the class {names[missing[0]]!r} can be read. Add some.")


def tell_of(pile: Pile, reporter: Reporter) -> None:
    """Tell what in a pile was learned before, comes twice, or shows nothing."""
    if pile.seen:
        reporter.say(
            f"{pile.seen:,} images were learned in {stages_of(pile)}: they keep their class."
        )
    if pile.repeated:
        reporter.say(f"{pile.repeated:,} images are copies of others and count once.")
    if blank := pile.fresh.blank():
        listed = ", ".join(blank[:3]) + (", ..." if len(blank) > 3 else "")
        reporter.warn(
            f"{len(blank):,} images show one colour all over, so their class means nothing: "
            f"{listed}."
        )


def tell_of_two_labels(pile: Pile, given: ImageSet, labels: IntArray, reporter: Reporter) -> None:
    """Tell of images that came with two labels; the first one counts."""
    first: dict[bytes, tuple[str, int]] = {}
    own = labels_of(pile.given, given, labels).tolist()
    for content, name, label in zip(pile.contents, pile.given.names, own, strict=True):
        other, truth = first.setdefault(content, (name, label))
        if truth != label:
            reporter.warn(f"{other} and {name} are one image with two labels.")
