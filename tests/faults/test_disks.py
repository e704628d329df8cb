"""Full and read-only disks, clocks that go backwards, files that vanish, two at once."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goal.common.errors import GoalError
from goal.data.images import Dataset
from goal.data.sets import load_dataset
from goal.runs.run import resume, start
from goal.settings.settings import compose
from tests.faults.nursery import Command, Plan, goal
from tests.faults.test_kills import chosen_sites
from tests.faults.worlds import Work, assert_nothing_torn, live_through, run_arguments


def test_a_full_disk_is_an_error_that_loses_nothing(work: Work, tmp_path: Path) -> None:
    sites = chosen_sites(work.writes, 7, seed=4)
    outcomes = live_through(tmp_path, [Plan("full", site=site) for site in sites])
    failed = [outcome for outcome in outcomes if outcome.code != 0]
    assert len(failed) >= 6
    for outcome in failed:
        assert outcome.code == 1, outcome.output
        assert "No space left on device" in outcome.output and "Error: " in outcome.output
        assert "Traceback" not in outcome.output
    assert work.essence(tmp_path) == work.reference


def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    outcome = goal(tmp_path, *run_arguments(tmp_path), plan=Plan("readonly"))
    assert outcome.code == 1 and "Read-only file system" in outcome.output
    assert "Traceback" not in outcome.output
    assert not (tmp_path / "out").exists()


def test_results_do_not_depend_on_the_clock(work: Work, tmp_path: Path) -> None:
    outcome = goal(tmp_path, *run_arguments(tmp_path), plan=Plan("clock", seed=5))
    assert outcome.code == 0, outcome.output
    assert work.essence(tmp_path) == work.reference


def test_two_processes_on_one_run_and_one_bank(work: Work, tmp_path: Path) -> None:
    pair = [Command(tmp_path, run_arguments(tmp_path)) for _ in range(2)]
    outcomes = [command.outcome() for command in pair]
    assert sorted(outcome.code for outcome in outcomes)[0] == 0
    for outcome in outcomes:  # the second may have come late enough to find it finished
        assert outcome.code == 0 or "Another process is working in" in outcome.output
    assert_nothing_torn(tmp_path)
    assert work.essence(tmp_path) == work.reference


def test_two_runs_share_a_bank_and_a_base_model(work: Work, tmp_path: Path) -> None:
    first = Command(tmp_path, run_arguments(tmp_path))
    other = [
        word.replace(f"{tmp_path}/out", f"{tmp_path}/other") for word in run_arguments(tmp_path)
    ]
    second = Command(tmp_path, other)
    assert [first.outcome().code, second.outcome().code] == [0, 0]
    assert work.essence(tmp_path) == work.reference
    results = (tmp_path / "other" / "results.jsonl").read_bytes()
    assert results == work.reference["results.jsonl"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for label in range(4):
        folder = tmp_path / "pictures" / f"kind-{label}"
        folder.mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 60, (8, 8, 3)) + 60 * label
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "pictures"


def settings_for(pictures: Path) -> dict[str, object]:
    return {
        "data": {"name": "folder", "root": str(pictures)},
        "method": {"name": "kmeans"},
        "backbone": {"name": "digits-vit"},
        "transform": {"image_size": 16, "resize": 18},
        "protocol": {"base_classes": 2, "stages": 1},
        "bank": {"views": 1},
    }


def test_vanished_files_are_named(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = compose(settings_for(pictures))
    gone = sorted(pictures.rglob("*.png"))[3]
    content = gone.read_bytes()

    def load_then_lose(*arguments: Any) -> Dataset:
        dataset = load_dataset(*arguments)
        gone.unlink()
        return dataset

    monkeypatch.setattr("goal.runs.run.load_dataset", load_then_lose)
    with pytest.raises(GoalError, match=gone.name):
        start(settings, tmp_path / "out")
    gone.write_bytes(content)
    os.utime(gone, (0, 0))  # a file from 1970 is as good as any
    monkeypatch.undo()
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "cache"))
    start(settings, tmp_path / "out")
    shutil.rmtree(pictures)
    with pytest.raises(GoalError, match="There is no folder"):
        start(settings, tmp_path / "again")
    assert resume(tmp_path / "out")["method"] == "kmeans"  # finished: needs no data
