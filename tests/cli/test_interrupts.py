"""Ctrl-C and SIGTERM on real processes: a word about how to go on, and the right exit code."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goal.common.process import Pause
from tests.models.digit_folders import write_digits


def interrupted(words: list[str], ready: Callable[[], bool], number: int) -> tuple[int, str]:
    """Start `goal WORDS`, send it a signal once it is ready; return exit code and messages."""
    command = [sys.executable, "-m", "goal", *words]
    # Its own group, and the handlers that a shell in the foreground would leave it.
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what is ignored is inherited
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    signal.signal(signal.SIGINT, before)
    patience = Pause(120)
    while not ready():
        assert child.poll() is None and not patience.over(), child.communicate()
        time.sleep(0.02)
    os.kill(child.pid, number)
    out, err = child.communicate(timeout=60)
    assert "Traceback" not in out + err
    return child.returncode, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "a run"
    endless = ["--set", "training.base_epochs=100000", "bank.views=1"]
    words = ["run", "digits/goal", "--out", str(folder), *endless]
    found, said = interrupted(words, (folder / "settings.yaml").exists, number)
    assert found == code
    assert said == f"Interrupted. Go on with `goal resume {shlex.quote(str(folder))}`\n"


def test_other_commands_are_to_be_repeated(tmp_path: Path) -> None:
    write_digits(tmp_path / "labelled", dict.fromkeys(range(2), range(10)), labelled=True)
    model = tmp_path / "m"
    words = ["fit", str(tmp_path / "labelled"), "--model", str(model), "--backbone", "digits-vit"]
    words += ["--method", "goal", "--set", "training.base_epochs=100000", "bank.views=1"]
    found, said = interrupted(words, (model / ".work" / "plan.json").exists, signal.SIGINT)
    assert found == 130
    assert said == f"Interrupted. Go on with `{shlex.join(['goal', *words])}`\n"
