"""What every method promises, held by `goal.testing`: a method in the table gets all of it."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch

from goal.common.errors import GoalError
from goal.methods.base import Batch, Stage
from goal.methods.kmeans import FrozenKMeans
from goal.methods.registry import METHODS, MethodSpec
from goal.testing import CHECKS, check_method


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("promise", CHECKS)
def test_promise(promise: str, name: str) -> None:
    CHECKS[promise](name)


def test_unlabelled_stages_and_batches_have_no_place_for_a_label() -> None:
    for kind in (Batch, Stage):
        names = {field.name for field in dataclasses.fields(kind)}
        assert not any(word in name for name in names for word in ("label", "target", "truth"))


class Careless(FrozenKMeans):
    """Draws from a generator of its own, and fails on a stage of one image."""

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        if len(stage.tokens) == 1:
            raise ZeroDivisionError("too few")
        super().begin_stage(stage, rng)
        self.seed = torch.randint(2**31, ())


def test_all_broken_promises_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "careless", MethodSpec(Careless, "breaks promises"))
    with pytest.raises(AssertionError) as caught:
        check_method("careless")
    text = str(caught.value)
    assert "'careless' breaks 2 of " in text
    assert "same seed, same result: the states differ in seed" in text
    assert "odd counts: one image: ZeroDivisionError: too few" in text


def wrong(**changes: Any) -> type[FrozenKMeans]:
    """A method with some of its answers replaced."""
    return type("Wrong", (FrozenKMeans,), changes)


@pytest.mark.parametrize(
    ("promise", "changes"),
    [
        ("an image alone gets the same class scores", {"class_scores": lambda self, o: o.features}),
        ("odd stage: two images", {"predict": lambda self, o: torch.full((len(o.features),), 99)}),
        ("odd counts: one image", {"num_classes": property(lambda self: 1)}),
    ],
)
def test_wrong_answers_are_found(
    promise: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "wrong", MethodSpec(wrong(**changes), "answers wrongly"))
    with pytest.raises(AssertionError, match=r"class"):
        CHECKS[promise]("wrong")


def test_an_unknown_method_is_no_broken_promise() -> None:
    with pytest.raises(GoalError, match="Did you mean 'kmeans'"):
        check_method("kmean")


def test_the_suite_needs_no_pytest() -> None:
    script = "import sys, goal.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
