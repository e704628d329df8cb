"""Live views: TensorBoard reads back what was reported; the terminal shows where a run is."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from goal.cli.terminal import TerminalReporter
from goal.common.errors import GoalError
from goal.common.progress import Reporter, Several
from goal.evaluation.metrics import last_accuracies
from goal.runs.loggers.tensorboard import TensorboardLogger
from goal.runs.run import start
from goal.storage.files import read_jsonl
from tests.small_run import small_settings


def test_curves_are_those_of_the_journals_and_the_terminal_shows_the_way(tmp_path: Path) -> None:
    out = io.StringIO()
    terminal = TerminalReporter(Console(file=out, force_terminal=True, width=160))
    live = Several(terminal, TensorboardLogger(tmp_path / "run"))
    assert not (tmp_path / "run").exists()  # nothing before there is something to write
    start(small_settings("protocol.stages=1"), tmp_path / "run", live)
    live.close()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    history = read_jsonl(tmp_path / "run" / "history.jsonl")
    contrast = [event.value for event in events.Scalars("loss/contrast")]
    assert contrast == pytest.approx([row["contrast"] for row in history], rel=1e-5)
    steps = [event.step for event in events.Scalars("loss/total")]
    assert steps == list(range(1, len(history) + 1))
    records = read_jsonl(tmp_path / "run" / "results.jsonl")
    found = [event.value for event in events.Scalars("stage/all")]
    assert found == pytest.approx([record["all"] for record in records], rel=1e-5)
    shown = out.getvalue()
    for text in ("All stages", "Stage 1: epochs", "loss ", last_accuracies(records[0])):
        assert text in shown


def test_a_base_model_that_is_found_is_logged_too(tmp_path: Path) -> None:
    settings = small_settings("protocol.stages=1")
    start(settings, tmp_path / "first")

    class Counting(Reporter):
        steps: list[int] = []  # noqa: RUF012

        def epoch_done(self, record: object, step: int) -> None:
            self.steps.append(step)

    counting = Counting()
    start(settings, tmp_path / "second", counting)
    assert counting.steps == list(range(1, 8))  # 4 epochs found, 3 trained


def test_without_tensorboard_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(GoalError, match=r"goal-cgcd\[tensorboard\]"):
        TensorboardLogger(tmp_path)
