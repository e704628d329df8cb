"""YAML is read as everyone expects, and bad YAML says where it is."""

from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.storage.yaml_files import parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-2E+3", -2000.0),
        ("1.5e3", 1500.0),
        ("3.e-2", 0.03),
        ("1e5", 1e5),
        ("1.5", 1.5),
        ("12", 12),
        ("[1e-3, 2]", [1e-3, 2]),
        ("null", None),
        ("false", False),
        ("e5", "e5"),
        ("'1e-4'", "1e-4"),
        ("1e-4x", "1e-4x"),
        ("7e3-run", "7e3-run"),
        ("12e4f0a1", "12e4f0a1"),
    ],
)
def test_values_are_read_as_everyone_expects(text: str, value: Any) -> None:
    result = parse_yaml(text, "test")
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(
    "text", ["{a: 1", "a: b: c", "!!python/object/apply:os.getcwd []", "2024-13-45", "\x00"]
)
def test_bad_yaml_says_where(text: str) -> None:
    with pytest.raises(GoalError, match=r"^here\.yaml is not valid YAML: "):
        parse_yaml(text, "here.yaml")
