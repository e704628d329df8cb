"""All promises of a method by name, and one function that holds a method to all of them."""

from collections.abc import Callable
from functools import partial
from unittest import SkipTest

from goal.common.errors import pick
from goal.methods.registry import METHODS
from goal.testing import little, promises

Check = Callable[[str], None]

_ODD_STAGES = {
    "one new class, no old samples": {3: 12},
    "one new class": {0: 4, 1: 4, 2: 4, 3: 12},
    "no new sample": {0: 6, 1: 6, 2: 6},
    "two images": {3: 2},
}

CHECKS: dict[str, Check] = {
    "same seed, same result": promises.same_seed_same_result,
    **{
        f"interrupted after epoch {epoch} equals uninterrupted": partial(
            promises.interrupted_equals_uninterrupted, stop_after=epoch
        )
        for epoch in (1, 2, 3)
    },
    "one image does not depend on another": promises.one_image_does_not_depend_on_another,
    "an image alone gets the same class scores": promises.an_image_alone_gets_the_same_class_scores,
    "growing leaves the scores of known classes alone": (
        promises.growing_leaves_the_scores_of_known_classes_alone
    ),
    "only tail and heads train, and each gets a gradient": (
        promises.only_tail_and_heads_train_and_each_gets_a_gradient
    ),
    **{
        f"odd stage: {case}": partial(promises.odd_stages_work, counts=counts)
        for case, counts in _ODD_STAGES.items()
    },
    "base classes are learned": promises.base_classes_are_learned,
    "the state dict is the whole method": promises.state_dict_is_the_whole_method,
    **{f"odd counts: {case}": partial(little.odd_counts, case=case) for case in little.CASES},
    "nothing but duplicates": little.nothing_but_duplicates,
    "constant images, black": partial(little.constant_images, level=0.0),
    "constant images, white": partial(little.constant_images, level=1.0),
}


def check_method(name: str) -> None:
    """Hold a method to every promise; takes a few seconds, no images and no network.

    Args:
        name: The method's name in `goal list methods`.

    Raises:
        AssertionError: If a promise is broken; the text lists all that are.
        GoalError: If there is no such method, or its class cannot be imported.
    """
    _ = pick(METHODS, name, "method").method
    broken: list[str] = []
    causes: list[Exception] = []
    for promise, check in CHECKS.items():
        try:
            check(name)
        except SkipTest:
            continue
        except Exception as error:  # a crash breaks a promise like any wrong answer
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            broken.append(f"  - {promise}: {kind}{error}")
            causes.append(error)
    if broken:
        raise AssertionError(
            f"The method '{name}' breaks {len(broken)} of {len(CHECKS)} promises:\n"
            + "\n".join(broken)
        ) from causes[0]
