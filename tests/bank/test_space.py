"""A bank announces its size, and says so when budget, disk or folder do not allow it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.filesize import decimal

from goal.bank.shelf import inspect
from goal.common.errors import GoalError
from goal.data.images import ArrayImages
from tests.bank.helpers import ROW, ROW_BYTES, Recorder, agrees, make_images, make_trunk, open_bank


def data_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("tokens.bin"))


@pytest.mark.parametrize("dtype", ROW_BYTES)
def test_the_size_is_announced_before_building(dtype: str, tmp_path: Path) -> None:
    images = make_images(6)
    opened = open_bank(tmp_path, images, dtype=dtype)
    [announcement] = opened.reporter.of("say")
    assert opened.reporter.events[0] == ("say", announcement), "before the first trunk pass"
    size = data_bytes(tmp_path)
    assert size == 6 * 3 * ROW_BYTES[dtype]
    assert f"{size / 1000:.1f} kB" in announcement and str(tmp_path) in announcement

    more = open_bank(tmp_path, images, dtype=dtype, views=3)
    growth = data_bytes(tmp_path) - size
    assert decimal(growth) in more.reporter.of("say")[0], "only what is missing"
    assert not open_bank(tmp_path, images, dtype=dtype, views=3).reporter.events


def test_a_full_disk_is_refused_before_building(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recorder = make_images(4), Recorder()
    open_bank(tmp_path, images, range(2), views=1)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1234))
        assert open_bank(tmp_path, images, range(2), views=1).computed == 0
        with pytest.raises(GoalError) as caught:
            open_bank(tmp_path, images, views=1, reporter=recorder)
    text = str(caught.value)
    assert "1.2 kB free" in text and f"{2 * 2 * ROW} bytes" in text and str(tmp_path) in text
    assert all(word in text for word in ("bank.views", "fresh", "bank.folder", "goal bank clear"))
    assert not recorder.of("trunk")
    opened = open_bank(tmp_path, images, views=1)
    assert opened.computed == 2 * 2 and not opened.reporter.of("warn")
    assert agrees(opened, images)


def test_the_budget_holds_for_the_whole_bank(tmp_path: Path) -> None:
    images, recorder = make_images(4), Recorder()
    budget = 6000e-9
    open_bank(tmp_path, images, range(2), views=1, budget_gb=budget)
    open_bank(tmp_path, images, range(2), views=1, budget_gb=budget, trunk=make_trunk(seed=1))
    size = sum(shelf.size for shelf in inspect(tmp_path / "bank"))
    tight = (size + 100) / 1e9
    with pytest.raises(GoalError) as caught:
        open_bank(tmp_path, images, views=1, budget_gb=tight, reporter=recorder)
    text = str(caught.value)
    assert "budget" in text and str(tight) in text and "goal bank clear" in text
    assert not recorder.of("trunk")
    assert open_bank(tmp_path, images, range(2), views=1, budget_gb=tight).computed == 0
    enough = (size + 2 * 2 * ROW) / 1e9 + 1e-9
    opened = open_bank(tmp_path, images, views=1, budget_gb=enough)
    assert opened.computed == 2 * 2
    assert agrees(opened, images)


def obstructed(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, images: ArrayImages
) -> None:
    """Make the bank's folder impossible to write to, also for root."""
    original: Callable[..., Any] = Path.mkdir if kind == "mkdir" else os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if folder in Path(path).parents:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    if kind == "a file in the way":
        folder.write_text("not a folder")
    elif kind == "open":
        open_bank(folder, images, range(1))
        monkeypatch.setattr(os, kind, refuse)
    else:
        monkeypatch.setattr(Path, kind, refuse)


@pytest.mark.parametrize("kind", ["mkdir", "open", "a file in the way"])
def test_a_folder_that_cannot_be_written_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, images = tmp_path / "cache", make_images(2)
    obstructed(kind, folder, monkeypatch, images)
    with pytest.raises(GoalError) as caught:
        open_bank(folder, images)
    text = str(caught.value)
    assert str(folder) in text and ("bank.folder" in text or "GOAL_CACHE" in text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(GoalError, match=str(tmp_path)):
            open_bank(tmp_path / "cache", make_images(2))
    finally:
        tmp_path.chmod(0o700)
