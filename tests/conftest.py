"""Tests share the machine: one thread each, and a token bank of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


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
