"""The benchmark of discovery: what it rehearses and counts, on digits."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.discovery.__main__ import app
from benchmarks.discovery.counting import Pile, Pool
from benchmarks.discovery.features import featured
from benchmarks.discovery.rehearsals import KINDS, rehearsed
from benchmarks.discovery.running import as_run, run
from goal.common.progress import Reporter
from goal.data.images import Dataset
from goal.protocol.stages import build_stages
from goal.runs.run import start
from goal.settings.recipes import assemble
from goal.settings.settings import Settings

SMALL = ["protocol.stages=1", "protocol.new_per_stage=2", "method.restarts=2", "threads=1"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Settings]:
    settings = assemble("digits/goal-plus", None, None, {}, SMALL)
    return featured(settings, (1,), tmp_path_factory.mktemp("features"), Reporter()), settings


def test_figures_are_those_of_goal_run(digits: tuple[Dataset, Settings], tmp_path: Path) -> None:
    dataset, settings = digits
    summary = start(settings, tmp_path / "run")
    found = run(as_run(dataset, settings), settings, "known")
    assert found.all == pytest.approx(summary["average"]["all"])
    assert found.novel == pytest.approx(summary["average"]["novel"])
    assert found.forgetting == pytest.approx(summary["forgetting"]["happy"])
    assert found.counted == (2,)


def test_rehearsals_use_labelled_images_only_and_test_on_others(
    digits: tuple[Dataset, Settings],
) -> None:
    dataset, settings = digits
    kind = KINDS[-1]
    cut = rehearsed(kind, dataset, settings, draw=1)
    labels = dataset.train.labels, dataset.test.labels
    stage0 = build_stages(*labels, len(dataset.class_names), settings.protocol)[0]
    assert len(cut.train.labels) == len(stage0.train_ids)
    test = set(cut.stages[-1].test_ids.tolist())
    for stage in cut.stages:
        assert not test & set(stage.train_ids.tolist())
        assert set(cut.train_targets[stage.train_ids].tolist()) == set(range(stage.num_seen))
    first = set(cut.stages[0].train_ids.tolist())
    assert not first & set(cut.stages[1].train_ids.tolist())  # a stage's known images are fresh


def test_piles_are_as_large_as_they_say(digits: tuple[Dataset, Settings]) -> None:
    assert Pile(5, 80, True, 6).sizes().tolist() == [8, 14, 25, 45, 80]
    assert Pile(2, 25, False, 6).sizes().tolist() == [25, 25]
    assert Pile(0, 0, False, 6).sizes().tolist() == []
    dataset, settings = digits
    pool = Pool(dataset, settings, 2, draw=0)
    assert len(pool.known) == 2 and len(pool.novel) == 2
    assert pool.count(Pile(0, 0, False, 6), 0) == 0
    known = np.concatenate(pool.known)
    assert not any((known == row).all(axis=1).any() for part in pool.shown for row in part)


def table(printed: str) -> str:
    """What was printed, without how far the work had come."""
    return printed[printed.index("┏") :]


def test_what_was_measured_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data-root", str(tmp_path), "--backbone", "none", "--out", str(tmp_path / "out")]
    words += ["--parts", "digits", "--seeds", "0"]
    app(words, result_action="return_value")
    first = table(capsys.readouterr().out)
    assert "oracle" in first and "auto" in first

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("benchmarks.discovery.__main__.run", refuse)
    app(words, result_action="return_value")
    assert table(capsys.readouterr().out) == first
