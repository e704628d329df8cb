"""What is seen of long work: bars that fit the terminal, lines in a log."""

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from goal.cli.terminal import TerminalReporter
from goal.common.wording import counted, duration
from tests.cli.test_commands import run

LOSS = "loss 12.345 = contrast 4.32, alignment 0.45, classification 2.33, distillation 1.22"


def shown(width: int) -> list[str]:
    """Lines that a terminal of a width has shown, without their colours."""
    out = io.StringIO()
    reporter = TerminalReporter(Console(file=out, force_terminal=True, width=width))
    for _ in reporter.track(range(3), 3, "All stages"):
        for _ in reporter.track(range(100), 100, "Building the token bank"):
            reporter.note("Building the token bank", LOSS)
            time.sleep(0.003)
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()))


@pytest.mark.parametrize("width", [80, 100])
def test_bar_and_eta_stay_and_the_loss_terms_give_way(width: int) -> None:
    noted = [line for line in shown(width) if "loss" in line]
    assert noted
    for line in noted:
        assert len(line) <= width
        assert re.search(r"━{5,}.* +\d+/100 \d:\d\d:\d\d [\d-]:[\d-]{2}:[\d-]{2} loss", line), line


def logged(often: float, seldom: float, seconds: float) -> list[str]:
    out = io.StringIO()
    reporter = TerminalReporter(Console(file=out, width=80), often, seldom)
    for _ in reporter.track(range(2), 2, "All stages"):
        for _ in reporter.track(range(4), 4, "Stage 1: epochs"):
            reporter.note("Stage 1: epochs", LOSS)
            time.sleep(seconds)
    return out.getvalue().splitlines()


def test_a_log_has_one_line_per_step_with_percent_and_time_left() -> None:
    lines = logged(often=0.0, seldom=1000.0, seconds=0.0)
    epochs = [line for line in lines if "epochs" in line]
    assert len(epochs) == 8
    assert epochs[1].startswith("All stages: 0% (0 of 2); Stage 1: epochs: 50% (2 of 4), 0 s left")
    assert epochs[1].endswith(LOSS)  # on the same line, however narrow
    assert epochs[7].startswith("All stages: 50% (1 of 2), 0 s left; Stage 1: epochs: 100%")


def test_a_log_goes_on_while_a_single_step_takes_long() -> None:
    lines = logged(often=1000.0, seldom=0.02, seconds=0.2)
    assert sum("Stage 1: epochs: 25% (1 of 4)" in line for line in lines) >= 2


def test_a_log_of_quick_work_is_short() -> None:
    assert logged(often=1000.0, seldom=1000.0, seconds=0.0) == []


def test_the_watch_ends_when_the_work_is_interrupted() -> None:
    out = io.StringIO()
    reporter = TerminalReporter(Console(file=out), 0.0, 0.01)
    work = reporter.track(range(3), 3, "Work")
    next(work)
    reporter.close()
    told = out.getvalue()
    time.sleep(0.1)
    assert out.getvalue() == told


def test_a_run_in_a_log_has_one_line_per_stage_and_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--methods", "kmeans", "--seeds", "0,1", "--out", str(tmp_path)]
    code, out, _ = run(capsys, *words, "--set", "protocol.stages=2")
    assert code == 0
    assert out.count("Accuracy per stage, percent") == 2  # one for each run, not for each stage
    assert out.count("After stage 1: All ") == 2
    assert "(All stages: 66% (2 of 3), " in out
    for text in ("Cell 1 of 2: digits/kmeans/seed-0", "Cell 2 of 2: digits/kmeans/seed-1"):
        assert text in out


def test_numbers_in_sentences() -> None:
    cases = {(1, "class"): "1 class", (2, "new class"): "2 new classes", (1, "image"): "1 image"}
    cases |= {(0, "file"): "0 files", (1500, "vertex"): "1,500 vertices"}
    for given, text in cases.items():
        assert counted(*given) == text
    for seconds, text in {
        0.4: "0 s",
        -2: "0 s",
        89: "89 s",
        200: "3 min",
        7500: "2 h 05 min",
    }.items():
        assert duration(seconds) == text
