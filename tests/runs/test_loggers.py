"""Live curves in other tools: what was reported is read back from their own files, offline."""

import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.runs.loggers import make_logger
from goal.runs.loggers.base import CurveLogger
from tests.cli.test_commands import run

EPOCHS = [{"stage": 0, "epoch": 1, "contrast": 2.5, "replay": 0.5}]
STAGES = [{"stage": 0, "all": 90.5, "unseen": None, "selection": "last"}]


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback alone: wandb speaks to a process of its own there."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        assert not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1"), address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def report_to(logger: CurveLogger) -> None:
    logger.epoch_done(EPOCHS[0], 1)
    logger.stage_done(STAGES)
    logger.stage_done([*STAGES, {"stage": 1, "all": 80.25}])
    logger.close()


@pytest.mark.usefixtures("_offline")
def test_mlflow_keeps_curves_in_its_database_and_goes_on_with_them(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="install goal-cgcd[mlflow] to test it")
    pytest.importorskip("sqlalchemy", reason="install goal-cgcd[mlflow] to test it")
    logger = make_logger("mlflow", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    report_to(logger)
    again = make_logger("mlflow", tmp_path / "run")
    again.epoch_done({"contrast": 1.0}, 2)
    again.close()
    with sqlite3.connect(tmp_path / "run" / "mlflow" / "mlflow.db") as database:
        rows = database.execute("select key, step, value, run_uuid from metrics").fetchall()
    assert len({row[3] for row in rows}) == 1
    assert {row[:3] for row in rows} == {
        ("loss/contrast", 1, 2.5),
        ("loss/replay", 1, 0.5),
        ("loss/total", 1, 3.0),
        ("stage/all", 0, 90.5),
        ("stage/all", 1, 80.25),
        ("loss/contrast", 2, 1.0),
        ("loss/total", 2, 1.0),
    }


@pytest.mark.usefixtures("_offline")
def test_wandb_keeps_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="install goal-cgcd[wandb] to test it")
    logger = make_logger("wandb", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    report_to(logger)
    (place,) = (tmp_path / "run" / "wandb" / "wandb").glob("offline-run-*")
    (record,) = place.glob("*.wandb")
    content = record.read_bytes()
    for text in (b"loss/contrast", b"loss/total", b"stage/all", b"80.25"):
        assert text in content


@pytest.mark.parametrize("tool", ["wandb", "mlflow", "tensorboard"])
def test_a_missing_package_says_how_to_get_it(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tool, None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(GoalError, match=rf"--log {tool} needs .*goal-cgcd\[{tool}\]"):
        make_logger(tool, tmp_path)


def test_several_at_once_are_given_by_commas_or_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Fake(CurveLogger):
        tool = "fake"
        how_to_look = "look"

        def write(self, values: Any, axis: Any, step: int) -> None:
            made.append(f"{axis} {step}")

    asked: list[str] = []

    def make(name: str, folder: Path) -> CurveLogger:
        asked.append(name)
        return Fake(folder)

    monkeypatch.setattr("goal.runs.loggers.make_logger", make)
    words = ["run", "digits/kmeans", "--out", str(tmp_path / "r"), "--set", "protocol.stages=1"]
    code, out, err = run(capsys, *words, "--log", "wandb,mlflow", "--log", "tensorboard")
    assert code == 0, err
    assert asked == ["wandb", "mlflow", "tensorboard"] and out.count("Live curves: look") == 3
    assert made == ["stage 0"] * 3 + ["stage 1"] * 3
    code, _, err = run(capsys, *words, "--log", "tensorbord")
    assert code == 1 and "Did you mean 'tensorboard'?" in err
