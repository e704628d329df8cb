"""A section of settings is parsed and frozen, and all its mistakes are named at once."""

import pytest
from pydantic import Field, ValidationError

from goal.common.errors import GoalError
from goal.common.section import Section


class Wheel(Section):
    spokes: int = Field(default=32, gt=0)
    size: float = 28.0


class Bicycle(Section):
    maker: str
    front: Wheel = Wheel()
    gears: int | None = None


def test_a_section_is_parsed_and_frozen() -> None:
    bicycle = Bicycle.parse({"maker": "a", "front": {"size": 26}})
    assert bicycle.front.size == 26 and bicycle.front.spokes == 32
    with pytest.raises(ValidationError, match="frozen"):
        bicycle.front.spokes = 3  # type: ignore[misc]


def test_all_mistakes_are_named_at_once() -> None:
    values = {"front": {"spoke": 3, "size": "big"}, "gear": 7, "gears": True}
    with pytest.raises(GoalError) as caught:
        Bicycle.parse(values, "bicycle")
    head, *lines = str(caught.value).splitlines()
    assert head == "Bad bicycle:"
    assert sorted(line.removeprefix("  - ").split(":")[0] for line in lines) == [
        "front.size",
        "front.spoke",
        "gear",
        "gears",
        "maker",
    ]
    text = str(caught.value)
    assert "front.spoke: no such key. Did you mean 'spokes'? Keys here: spokes, size." in text
    assert "gear: no such key. Did you mean 'gears'? Keys here: maker, front, gears." in text
    assert "(given: 'big')" in text and "(given: True)" in text


def test_a_default_that_breaks_its_own_rule_is_an_error() -> None:
    class Broken(Section):
        spokes: int = Field(default=-1, gt=0)

    with pytest.raises(GoalError, match="spokes"):
        Broken.parse({})
