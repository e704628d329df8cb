"""kill -9 a real process several times; the result must be that of an undisturbed run."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.small_run import as_flags

FLAGS = as_flags(
    "training.base_epochs=12", "training.stage_epochs=8", "training.checkpoint_seconds=0.0"
)


def launch(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "goal", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def kill_when(process: subprocess.Popen[str], due: Callable[[], bool]) -> bool:
    """Kill the process as soon as `due`; False if it ended before that."""
    deadline = time.monotonic() + 120
    while process.poll() is None:
        if due():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return process.returncode == -signal.SIGKILL
        assert time.monotonic() < deadline, "the run hangs"
        time.sleep(0.002)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return False


def test_killed_at_any_moment_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = launch("run", "--dataset", "digits", "--out", str(whole), *FLAGS)
    output = undisturbed.communicate(timeout=300)[0]
    assert undisturbed.returncode == 0, output

    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "another-cache"))
    history, results = killed / "history.jsonl", killed / "results.jsonl"
    first = launch("run", "--dataset", "digits", "--out", str(killed), *FLAGS)
    rows = tmp_path / "another-cache"
    kills = int(kill_when(first, lambda: any(rows.rglob("rows.bin"))))  # while the bank is built
    moments: list[Callable[[], bool]] = [
        lambda: lines(history) >= 5,  # in the middle of stage 0
        lambda: lines(history) >= 14,  # stage 1
        lambda: any(killed.glob(".checkpoint*.tmp")),  # while a checkpoint is written
        lambda: lines(results) >= 3,  # just after stage 2
    ]
    for due in moments:
        kills += int(kill_when(launch("resume", str(killed)), due))
    final = launch("resume", str(killed))
    output = final.communicate(timeout=300)[0]
    assert final.returncode == 0, output
    assert kills >= 4
    for name in ("results.jsonl", "history.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    assert not list(killed.rglob(".*.tmp"))
