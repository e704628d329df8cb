"""Runs go on when the number of new classes is estimated, also if it is none."""

from pathlib import Path

import numpy as np
import pytest

from goal.counting.counter import Counter
from goal.counting.estimators import Count
from goal.learning.trainer import StageTrainer
from goal.runs.run import resume, start
from goal.settings.recipes import read_recipe
from goal.settings.settings import compose
from goal.storage.files import read_jsonl
from tests.small_run import small_settings


@pytest.mark.parametrize("method", ["goal", "kmeans", "vb_cgcd"])
def test_a_run_can_count_the_new_classes_itself(method: str, tmp_path: Path) -> None:
    settings = small_settings("protocol.estimate_new=true")
    if method != "goal":
        recipe = read_recipe(f"digits/{method}")
        small = {"train_per_class": 30, "test_per_class": 10, "estimate_new": True}
        training = {"base_epochs": 2, "stage_epochs": 2}
        settings = compose(recipe, {"protocol": small, "training": training})
    start(settings, tmp_path / "run")
    records = read_jsonl(tmp_path / "run" / "results.jsonl")
    assert [record["num_new"] for record in records] == [4, 2, 2, 2]
    found = [record["num_found"] for record in records]
    assert found[0] == 4 and all(0 <= count <= 10 for count in found)
    assert sum(found[1:]) > 0
    for record in records:
        saved = np.load(tmp_path / "run" / "stages" / f"stage-{record['stage']}.npz")
        assert saved["predictions"].max() < sum(found[: record["stage"] + 1])


def test_counting_survives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings("protocol.estimate_new=true", "training.checkpoint_seconds=0")
    start(settings, tmp_path / "whole")
    original = StageTrainer._train_epoch

    def struck(self: StageTrainer, epoch: int) -> dict[str, float]:
        if (self.stage.index, epoch) == (2, 1):
            raise KeyboardInterrupt
        return original(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "_train_epoch", struck)
        with pytest.raises(KeyboardInterrupt):
            start(settings, tmp_path / "broken")
    resume(tmp_path / "broken")
    for name in ("results.jsonl", "history.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_stage_with_nothing_new_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "count", lambda self, tokens, index, most: Count(0))
    start(small_settings("protocol.estimate_new=true"), tmp_path / "run")
    records = read_jsonl(tmp_path / "run" / "results.jsonl")
    assert [record["num_found"] for record in records] == [4, 0, 0, 0]
    last = np.load(tmp_path / "run" / "stages" / "stage-3.npz", allow_pickle=False)
    assert last["predictions"].max() < 4
    assert {row["stage"] for row in read_jsonl(tmp_path / "run" / "history.jsonl")} == {0}
    assert "confident_size" not in records[1]
