"""The plug-in keeps every promise of a method and of a dataset."""

import pytest

from goal.testing import CHECKS, check_dataset


@pytest.mark.parametrize("promise", CHECKS)
def test_method(promise: str) -> None:
    CHECKS[promise]("nearest-mean")


def test_dataset() -> None:
    check_dataset("stripes")
