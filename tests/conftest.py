"""Tests share the machine: one thread each, a token bank of their own, and one browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session", autouse=True)
def _one_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:  # for fixtures wider than one test
        patch.setenv("GOAL_CACHE", str(tmp_path_factory.mktemp("shared-cache")))
        yield


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "goal-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """A real browser, one for all tests. Where Chromium is missing, they say how to get it."""
    from playwright.sync_api import expect, sync_playwright

    from tests.browser.conftest import ARGUMENTS, PATIENCE

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        opened = playwright.chromium.launch(
            executable_path=path, args=list(ARGUMENTS), timeout=PATIENCE
        )
        yield opened
        opened.close()
