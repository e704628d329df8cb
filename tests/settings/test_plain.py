"""Plain trees of settings are read from assignments and files, and merged."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal.common.errors import GoalError
from goal.settings.plain import flatten, merge, parse_assignments, read_settings


def test_assignments_become_a_tree() -> None:
    texts = [
        "seed=1",
        "training.base_lr=1e-2",
        "data.root=/a=b",
        "training.base_epochs=2",
        "seed=5",
    ]
    assert parse_assignments(texts) == {
        "seed": 5,  # the last one counts
        "training": {"base_lr": 0.01, "base_epochs": 2},
        "data": {"root": "/a=b"},
    }
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("text", ["seed", "", "=3", ".seed=3", "training.=3", "a..b=3"])
def test_a_bad_assignment_is_quoted(text: str) -> None:
    with pytest.raises(GoalError, match=r"write it as key\.sub=value") as caught:
        parse_assignments([text])
    assert f"--set {text!r}" in str(caught.value)


def test_a_bad_value_in_an_assignment_is_quoted() -> None:
    with pytest.raises(GoalError, match=r"^--set training.base_lr=\[1 is not valid YAML"):
        parse_assignments(["training.base_lr=[1"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"- a\n", "must hold sections with keys; it holds list"),
        (b"", "must hold sections with keys; it holds NoneType"),
        (b"\xff\xfe\xfa", "is not UTF-8 text"),
        (b"a: [", "is not valid YAML"),
    ],
)
def test_a_bad_settings_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(GoalError, match=complaint) as caught:
        read_settings(path)
    assert str(path) in str(caught.value)
    with pytest.raises(GoalError, match=r"Cannot read .*missing\.yaml: No such file"):
        read_settings(tmp_path / "missing.yaml")


names = st.sampled_from("abc")
trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1), max_leaves=8
)
mappings = st.dictionaries(names, trees)


def walk(tree: Mapping[str, Any], *path: str) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        found.update(walk(value, *path, key) if isinstance(value, dict) else {(*path, key): value})
    return found


@given(mappings, mappings)
def test_merge_keeps_the_upper_value_wherever_both_have_one(
    under: dict[str, Any], over: dict[str, Any]
) -> None:
    before = json.dumps([under, over])
    merged = walk(merge(under, over))
    above = walk(over)

    def hidden(path: tuple[str, ...]) -> bool:
        """Whether something above lies at, over or below the place."""
        return any(path[: len(p)] == p or p[: len(path)] == path for p in above)

    rest = {path: value for path, value in walk(under).items() if not hidden(path)}
    assert merged == {**rest, **above}
    assert json.dumps([under, over]) == before  # neither is changed
    assert flatten(under) == {".".join(path): value for path, value in walk(under).items()}
