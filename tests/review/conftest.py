"""A model of digits with two stages, and the page that serves it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from goal.models.model import Model
from goal.models.settings import model_settings
from goal.review.desk import Desk
from goal.review.guard import Guard
from goal.review.routes import application
from goal.review.server import make_desk
from goal.review.session import Session
from tests.models.digit_folders import screened, write_digits

PORT = 8123
HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` and the images it learned: digits 0-2, then 4 and 5."""
    root = tmp_path_factory.mktemp("review")
    labelled = write_digits(root / "labelled", dict.fromkeys(range(3), range(15)), labelled=True)
    given = screened(labelled)
    labels = np.array([int(Path(name).parent.name) for name in given.names])
    model = Model(root / "model")
    model.fit(given, labels, ["0", "1", "2"], model_settings("goal-plus", "digits-vit", 0))
    week = write_digits(root / "week", {0: range(15, 20), 4: range(25), 5: range(25)})
    model.discover(screened(week), 2)
    return root


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "cache"))


@dataclass
class Opened:
    """A page, its model, and a client that has shown its token."""

    model: Model
    desk: Desk
    session: Session
    client: TestClient

    @property
    def version(self) -> str:
        return str(self.client.get("/api/state").json()["version"])

    def act(self, **wanted: object) -> "tuple[int, dict[str, object]]":
        """Ask for an action as the page does."""
        body = {"version": self.version, **wanted}
        answer = self.client.post("/api/act", json=body, headers={"origin": HERE})
        return answer.status_code, answer.json()

    def names(self) -> list[str]:
        return [known["name"] for known in self.client.get("/api/state").json()["classes"]]


def open_page(folder: Path, read_only: bool = False, images: tuple[Path, ...] = ()) -> Opened:
    """Open the page of a model folder and exchange its token."""
    model = Model(folder)
    desk = make_desk(model, read_only, images)
    session = Session(folder)
    guard = Guard(application(desk), PORT, session)
    client = TestClient(guard, base_url=HERE, follow_redirects=False)
    client.get("/", params={"token": session.token})
    return Opened(model, desk, session, client)


@pytest.fixture
def folder(grown: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be changed."""
    return Path(shutil.copytree(grown / "model", tmp_path / "model"))


@pytest.fixture
def opened(folder: Path) -> Iterator[Opened]:
    yield open_page(folder)
