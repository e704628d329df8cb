"""A finished run that several files look at."""

from pathlib import Path

import pytest

from goal.runs.run import start
from tests.small_run import small_settings


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    start(small_settings(), folder)
    return folder
