"""Errors suggest the name that was meant."""

import pytest

from goal.common.errors import GoalError, did_you_mean, pick


def test_suggestions() -> None:
    assert did_you_mean("stges", ["stages", "seed"]) == " Did you mean 'stages'?"
    assert did_you_mean("zzz", ["stages", "seed"]) == ""
    assert pick({"a": 1, "b": 2}, "b", "thing") == 2
    with pytest.raises(GoalError, match=r"^Unknown thing 'zzz'\. Choose one of: a, b\.$"):
        pick({"b": 2, "a": 1}, "zzz", "thing")
