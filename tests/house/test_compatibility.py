"""Files of format 1, kept for ever: every version reads them, or says what to do."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from goal.bank.shelf import RECORD, Shelf
from goal.cli import main
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.models.folder import ModelFolder
from goal.report.compare import paper_tables
from goal.report.page import render
from goal.report.runs import load_run
from goal.runs.run import resume
from goal.storage import checkpoint
from goal.storage.manifest import MANIFEST
from goal.verify import verify
from tests.models.digit_folders import write_digits

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format-1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "run", tmp_path / "run"))


def test_a_finished_run_is_read(run: Path) -> None:
    assert verify(run).problems == []
    record = load_run(run)
    assert [row["stage"] for row in record.records] == [0, 1]
    assert "</html>" in render([record])
    assert any("kmeans" in row[0] for table in paper_tables([run]) for row in table.rows)
    assert resume(run) == record.summary
    assert checkpoint.load(run / "checkpoint.pt")["stage"] == 1


def test_an_unfinished_run_goes_on(run: Path) -> None:
    finished = (run / "results.jsonl").read_bytes()
    for name in ("summary.json", MANIFEST):
        (run / name).unlink()
    resume(run)
    assert (run / "results.jsonl").read_bytes() == finished
    assert verify(run).problems == []


def test_a_token_bank_is_read() -> None:
    (folder,) = FIXTURES.glob("bank/*/*")
    about = json.loads((folder / "about.json").read_text())
    assert about.pop("format") == 1
    shelf = Shelf(folder.parent, about, Reporter())
    assert shelf.folder == folder
    digests = [bytes(digest) for digest in np.fromfile(folder / "rows.bin", RECORD)["digest"]]
    assert shelf.find(digests, Reporter()).tolist() == list(range(len(digests)))
    assert verify(FIXTURES / "bank").problems == []


def test_a_model_is_read_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(shutil.copytree(FIXTURES / "model", tmp_path / "model"))
    assert verify(model).problems == []
    assert [known.name for known in ModelFolder(model).roster.classes()] == ["0", "1", "two"]
    week = write_digits(tmp_path / "week", {0: range(2)})
    with pytest.raises(SystemExit) as stop:
        main(["predict", str(week), "--model", str(model)])
    assert not stop.value.code, capsys.readouterr().err


def newer(path: Path) -> None:
    content = json.loads(path.read_text())
    assert content["format"] == 1
    path.write_text(json.dumps(content | {"format": 2}))


ADVICE = r"format 2; this version reads format 1.*[Uu]pdate"


def test_a_newer_run_asks_for_a_newer_goal(run: Path) -> None:
    newer(run / "summary.json")
    with pytest.raises(GoalError, match=ADVICE):
        load_run(run)
    newer(run / MANIFEST)
    with pytest.raises(GoalError, match=ADVICE):
        resume(run)
    assert "Update" in verify(run).problems[0]


def test_a_newer_model_asks_for_a_newer_goal(tmp_path: Path) -> None:
    model = Path(shutil.copytree(FIXTURES / "model", tmp_path / "model"))
    newer(model / "stages" / "000" / "stage.json")
    with pytest.raises(GoalError, match=ADVICE):
        _ = ModelFolder(model).roster


def test_a_newer_checkpoint_asks_for_a_newer_goal(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"format": 2, "digest": "", "state": {}}, path)
    with pytest.raises(GoalError, match=ADVICE):
        checkpoint.load(path)


def test_a_newer_shelf_asks_for_a_newer_goal(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(FIXTURES / "bank", tmp_path / "bank"))
    newer(next(copy.glob("*/*/about.json")))
    assert "Update" in verify(copy).problems[0]
