"""Whole experiments write what is documented, and the same again from the same seed."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from goal.learning.trainer import StageTrainer
from goal.runs.run import resume, start
from goal.storage.files import read_jsonl
from tests.small_run import small_settings

INTERFACE = {"stage", "all", "base", "novel", "seen", "unseen", "nmi", "ari", "base_identity"}


def test_writes_the_documented_files(finished: Path) -> None:
    records = read_jsonl(finished / "results.jsonl")
    assert [record["stage"] for record in records] == [0, 1, 2, 3]
    assert all(record.keys() >= INTERFACE for record in records)
    assert [record["num_test"] for record in records] == [40, 60, 80, 100]
    summary = json.loads((finished / "summary.json").read_text())
    expected = np.mean([record["all"] for record in records[1:]])
    assert summary["average"]["all"] == pytest.approx(expected)
    assert summary["stage0_all"] == records[0]["all"]
    assert {"forgetting", "discovery", "wall_seconds", "settings_hash", "versions"} <= set(summary)
    history = read_jsonl(finished / "history.jsonl")
    assert [row["epoch"] for row in history] == [1, 2, 3, 4] + 3 * [1, 2, 3]
    assert {"alignment", "contrast", "replay", "distillation"} <= set(history[-1])
    for record in records:
        stage = np.load(finished / "stages" / f"stage-{record['stage']}.npz", allow_pickle=False)
        assert len(stage["predictions"]) == record["num_test"]
        base = stage["truth"] < 4
        identity = 100 * (stage["predictions"] == stage["truth"])[base].mean()
        assert record["base_identity"] == pytest.approx(identity)
        right = stage["owner"][stage["predictions"]] == stage["truth"]
        assert record["all"] == pytest.approx(100 * right.mean())
        classes = record["num_known"] + record["num_new"]
        assert stage["cosines_embeddings"].shape == (classes, classes)
        assert len(stage["map_vertices"]) == classes
        with zipfile.ZipFile(finished / "stages" / f"thumbnails-{record['stage']}.zip") as archive:
            shown = {int(name.removesuffix(".webp")) for name in archive.namelist()}
        assert shown <= set(stage["test_ids"].tolist())
        assert bool(shown) == (record["stage"] > 0)
    assert json.loads((finished / "classes.json").read_text())["names"][:4] == list("0123")
    assert len(summary["stage_seconds"]) == 4


def test_diagnostics_compare_the_confident_set_with_the_truth(finished: Path) -> None:
    last = read_jsonl(finished / "results.jsonl")[-1]
    assert last["confident_size"] > 0
    assert 0 <= last["confident_novel"] <= 100 and 0 < last["confident_purity"] <= 100
    assert -1 <= last["vertex_alignment"] <= 1
    assert {"nc1", "nc2", "nc3", "nc4", "nc3_vertices"} <= set(last)


def test_same_seed_same_files_other_seed_other_files(finished: Path, tmp_path: Path) -> None:
    start(small_settings(), tmp_path / "again")
    start(small_settings("seed=1"), tmp_path / "other")
    for name in ("results.jsonl", "history.jsonl"):
        reference = (finished / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == reference
        assert (tmp_path / "other" / name).read_bytes() != reference


def test_the_base_model_is_trained_once_and_sharing_changes_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: list[int] = []
    original = StageTrainer._train_epoch

    def counted(self: StageTrainer, epoch: int) -> dict[str, float]:
        epochs.append(self.stage.index)
        return original(self, epoch)

    monkeypatch.setattr(StageTrainer, "_train_epoch", counted)
    start(small_settings("method.replay_weight=0.5"), tmp_path / "first")
    assert epochs.count(0) == 4
    start(small_settings(), tmp_path / "second")  # differs after stage 0 only
    assert epochs.count(0) == 4
    for name in ("results.jsonl", "history.jsonl"):
        assert (tmp_path / "second" / name).read_bytes() == (finished / name).read_bytes()
    start(small_settings("method.supervised_alignment=false"), tmp_path / "third")
    assert epochs.count(0) == 8
    start(small_settings("training.share_base=false"), tmp_path / "fourth")
    assert epochs.count(0) == 12


def test_a_finished_run_is_not_run_again(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    summary = resume(finished)
    assert summary == json.loads((finished / "summary.json").read_text())
    assert {path: path.read_bytes() for path in before} == before


def test_selection_on_test_data_is_marked(tmp_path: Path) -> None:
    summary = start(small_settings("training.selection=best_on_test"), tmp_path / "out")
    assert summary["selection"] == "best_on_test"
    records = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert all(record["selection"] == "best_on_test" for record in records)


def test_fresh_views_need_no_bank(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings = small_settings(
        "bank.views=fresh",
        f"bank.folder={cache}",
        "protocol.train_per_class=12",
        "protocol.stages=1",
        "protocol.new_per_stage=2",
    )
    summary = start(settings, tmp_path / "out")
    assert summary["average"]["all"] > 0
    assert not list(cache.rglob("tokens.bin"))


@pytest.mark.parametrize("supervised", ["true", "false"])
@pytest.mark.parametrize("unsupervised", ["true", "false"])
def test_every_row_of_the_ablation_runs(supervised: str, unsupervised: str, tmp_path: Path) -> None:
    settings = small_settings(
        f"method.supervised_alignment={supervised}",
        f"method.unsupervised_alignment={unsupervised}",
        "protocol.stages=1",
        "protocol.new_per_stage=2",
    )
    start(settings, tmp_path / "out")
    history = read_jsonl(tmp_path / "out" / "history.jsonl")
    at_base = any("alignment" in row for row in history if row["stage"] == 0)
    later = any("alignment" in row for row in history if row["stage"] == 1)
    assert (at_base, later) == (supervised == "true", unsupervised == "true")
