"""Damaged files and strange values end in a clear error or a defined outcome."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goal.cli import main
from goal.common.errors import GoalError
from goal.common.section import Section
from goal.settings.settings import Settings, compose
from tests.faults.fuzz import TARGETS

# Rendering a page takes a while, mending a damaged shelf writes; the others are quick.
ATTEMPTS = {"results files": 40, "token banks": 60}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_damaged_bytes(name: str, tmp_path: Path) -> None:
    attempt = TARGETS[name](tmp_path)
    outcomes = [attempt(random.Random(seed)) for seed in range(ATTEMPTS.get(name, 150))]
    assert set(outcomes) <= {"error", "fine"}
    if name != "token banks":  # those mend themselves
        assert outcomes.count("error") > 5


def keys_of(section: type[Section]) -> list[str]:
    return list(section.model_fields)


SECTIONS = [
    name
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
]
KEYS = [
    *Settings.model_fields,
    *(key for name in SECTIONS for key in keys_of(Settings.model_fields[name].annotation)),  # type: ignore[arg-type]
]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), trees, max_size=4))
def test_any_tree_of_settings_is_taken_or_refused(tree: dict[str, Any]) -> None:
    try:
        composed = compose(tree)
    except GoalError as error:
        assert str(error)
    else:
        assert compose(composed.plain()) == composed


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    output = capsys.readouterr()
    return int(stop.value.code or 0), output.out + output.err


def test_a_laughing_settings_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    code, text = complaint(
        capsys, "run", str(tmp_path / "bomb.yaml"), "--out", str(tmp_path / "out")
    )
    assert code == 1 and "alias" in text and len(text) < 2000


@pytest.mark.parametrize(
    "content",
    ["seed: 1\nseed: 2\n", 'data: {root: "a\\0b"}\n', "seed: 1" + "0" * 5000, "[" * 3000, "? []\n"],
)
def test_odd_settings_files_are_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.yaml").write_text(content)
    code, text = complaint(
        capsys, "run", str(tmp_path / "odd.yaml"), "--out", str(tmp_path / "out")
    )
    assert code == 1 and "Traceback" not in text and len(text) < 2000
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", "meta", ""])
def test_devices_that_are_not_there_are_refused(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    code, text = complaint(capsys, "run", "--dataset", "digits", "--out", out, "--device", device)
    assert code == 1 and "device" in text


def test_a_defect_shows_itself_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the flux is off")

    monkeypatch.setattr("goal.runs.run.start", broken)
    code, text = complaint(capsys, "run", "--dataset", "digits", "--out", str(tmp_path / "out"))
    assert code == 70 and "bug in goal" in text and "--debug" in text and "flux" in text
    with pytest.raises(RuntimeError):
        main(["run", "--dataset", "digits", "--out", str(tmp_path / "out"), "--debug"])
