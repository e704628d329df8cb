"""Grids from the command line: resumable, tolerant of one cell's failure, on one process or Ray."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from goal.methods import registry as methods
from goal.methods.base import Stage
from goal.methods.kmeans import FrozenKMeans
from goal.runs import grid as bench
from goal.runs import run as run_module
from tests.cli.test_commands import run
from tests.small_run import as_flags

ONE_STAGE = ["--set", "protocol.stages=1", "protocol.new_per_stage=2"]


class Broken(FrozenKMeans):
    """Fails at stage 1."""

    def begin_stage(self, stage: Stage, rng: Any) -> None:
        if stage.index == 1:
            raise ZeroDivisionError("this method is broken")
        super().begin_stage(stage, rng)


def test_a_failing_cell_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(methods.METHODS, "broken", methods.MethodSpec(Broken, "fails"))
    grid = ["bench", "--methods", "broken,kmeans", "--seeds", "0,1", "--out", str(tmp_path)]
    code, out, err = run(capsys, *grid, *ONE_STAGE)
    assert code == 1
    assert "2 of 4 experiments failed" in err and "this method is broken" in err
    assert "Table 1 (digits, 1 stage)" in out and "kmeans, n=2" in out

    started: list[str] = []
    original = run_module.start

    def counted(settings: Any, folder: Path, reporter: Any) -> Any:
        started.append(folder.parent.name)
        return original(settings, folder, reporter)

    monkeypatch.setattr(bench, "start", counted)
    monkeypatch.setitem(methods.METHODS, "broken", methods.MethodSpec(FrozenKMeans, "mended"))
    code, out, _ = run(capsys, *grid, *ONE_STAGE)
    assert code == 0
    assert out.count("is finished already") == 2 and started.count("broken") == 2


def test_settings_of_one_method_do_not_trouble_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["bench", "--methods", "goal,kmeans", "--seeds", "0", "--out", str(tmp_path)]
    code, out, _ = run(capsys, *grid, *as_flags(), *ONE_STAGE)
    assert code == 0 and "goal, n=1" in out and "kmeans, n=1" in out
    code, _, err = run(capsys, *grid, "--set", "method.alhpa=0.5")
    assert code == 1 and "method.alhpa" in err
    code, out, _ = run(capsys, "compare", str(tmp_path), "--markdown")
    assert code == 0 and "| goal, n=1 |" in out
    code, _, err = run(capsys, "compare", str(tmp_path), "--markdown", "--csv")
    assert code == 1 and "one format" in err


def test_sweep_prints_and_writes_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "--over", "method.alpha=0.3,0.9", "--out", str(tmp_path)]
    code, out, _ = run(capsys, *words, *as_flags(), *ONE_STAGE)
    assert code == 0 and "0.3" in out and "0.9" in out
    with (tmp_path / "curve.csv").open() as stream:
        curve = list(csv.DictReader(stream))
    assert [row["value"] for row in curve] == ["0.3"] * 5 + ["0.9"] * 5
    assert all(0 <= float(row["mean"]) <= 100 and row["n"] == "1" for row in curve)
    assert [row["mean"] for row in json.loads((tmp_path / "curve.json").read_text())] == [
        float(row["mean"]) for row in curve
    ]
    code, _, err = run(capsys, "sweep", "--over", "method.alpha", "--out", str(tmp_path))
    assert code == 1 and "key.sub=value,value" in err


def test_ray_gives_the_same_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="install goal-cgcd[ray] to test the Ray engine")
    grid = ["bench", "--methods", "kmeans,goal", "--seeds", "0"]
    flags = [*as_flags(), *ONE_STAGE]
    for engine in ("local", "ray"):
        place = str(tmp_path / engine)
        code, _, err = run(capsys, *grid, "--out", place, "--engine", engine, *flags)
        assert code == 0, err
    for method in ("kmeans", "goal"):
        cell = Path("digits", method, "seed-0", "results.jsonl")
        ours, theirs = ((tmp_path / engine / cell).read_bytes() for engine in ("local", "ray"))
        assert ours == theirs
