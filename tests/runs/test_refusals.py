"""A run refuses other settings, other folders, a second process and losses that are not finite."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor

from goal.common.errors import GoalError
from goal.methods.goal import Goal
from goal.runs.run import resume, start
from goal.storage.files import read_jsonl
from goal.storage.locks import held
from tests.small_run import small_settings


def test_other_settings_are_refused_with_a_diff(finished: Path) -> None:
    with pytest.raises(GoalError, match=r"method\.alpha: 0\.7 in the folder, 0\.5 asked for"):
        start(small_settings("method.alpha=0.5"), finished)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("keep me")
    with pytest.raises(GoalError, match="not empty"):
        start(small_settings(), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "keep me"
    with pytest.raises(GoalError, match="no run to resume"):
        resume(tmp_path)


def test_two_processes_on_one_folder_are_refused(finished: Path) -> None:
    script = (
        "import sys, pathlib; from goal.storage.locks import held; "
        "lock = held(pathlib.Path(sys.argv[1])); lock.__enter__(); "
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(finished / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    with pytest.raises(GoalError, match="Another process is working"):
        resume(finished)
    other.kill()  # a dead process holds no lock
    other.communicate()
    assert resume(finished)["method"] == "goal"
    with held(finished / ".lock", wait=False):
        pass


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = small_settings("training.checkpoint_seconds=0.0")
    start(settings, whole)
    original = Goal._incremental_objective
    steps = 0

    def spoilt(self: Goal, *arguments: Tensor) -> dict[str, Tensor]:
        nonlocal steps
        steps += 1
        terms = original(self, *arguments)  # type: ignore[arg-type]
        return terms | {"contrast": terms["contrast"] * float("nan")} if steps > 3 else terms

    monkeypatch.setattr(Goal, "_incremental_objective", spoilt)
    with pytest.raises(GoalError, match=r"stage 1, epoch \d+, step \d+: .*contrast = nan"):
        start(settings, broken)
    assert [row["stage"] for row in read_jsonl(broken / "results.jsonl")] == [0]
    monkeypatch.setattr(Goal, "_incremental_objective", original)
    resume(broken)
    assert (broken / "results.jsonl").read_bytes() == (whole / "results.jsonl").read_bytes()


def test_a_linked_folder_of_stages_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "run" / "settings.yaml").write_bytes((finished / "settings.yaml").read_bytes())
    (tmp_path / "run" / "stages").symlink_to(tmp_path / "victim")
    with pytest.raises(GoalError, match="leads out of its folder"):
        resume(tmp_path / "run")
    assert list((tmp_path / "victim").iterdir()) == []
