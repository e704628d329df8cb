"""Tests share the machine: one thread each, and a token bank of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "goal-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield
