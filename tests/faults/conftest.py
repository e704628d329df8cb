"""One undisturbed run that all others must equal."""

import pytest

from tests.faults.worlds import Work, running


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return running(tmp_path_factory.mktemp("reference"))
