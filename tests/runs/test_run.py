"""Whole experiments: what they write, that they repeat, and what they refuse."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor

from goal.backbone.tail import ClsTail
from goal.backbone.tokens import Tokens
from goal.common.errors import GoalError
from goal.counting.counter import Counter
from goal.learning.trainer import StageTrainer
from goal.methods import registry as methods
from goal.methods.base import LabelledStage, Method, MethodSettings, Outputs, Stage, infer_all
from goal.methods.goal import Goal
from goal.numerics.clustering import class_means, kmeans
from goal.runs.run import resume, start
from goal.settings.plain import read_settings
from goal.settings.recipes import find_recipe
from goal.settings.settings import compose
from goal.storage.files import read_json, read_jsonl
from tests.small_run import small_settings

INTERFACE = {"stage", "all", "base", "novel", "seen", "unseen", "nmi", "ari", "base_identity"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    start(small_settings(), folder)
    return folder


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
        "import sys; from filelock import FileLock; lock = FileLock(sys.argv[1]); lock.acquire();"
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
    assert not FileLock(finished / ".lock").is_locked


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


class NearestMean(Method):
    """A memory without gradient steps: class means of the frozen feature, novel ones by k-means."""

    Settings = MethodSettings
    means: Tensor

    def __init__(self, tail: ClsTail) -> None:
        super().__init__(tail)
        self.register_buffer("means", torch.empty(0, tail.width))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: ClsTail, capacity: int, rng: torch.Generator
    ) -> "NearestMean":
        return cls(tail)

    @property
    def num_classes(self) -> int:
        return len(self.means)

    def trains(self, index: int) -> bool:
        return False

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            new = class_means(features, stage.labels, stage.num_new)
        else:
            far = (features @ self.means.T).amax(dim=1).argsort()[: len(features) // 2]
            new = kmeans(features[far], stage.num_new, rng)[1]
        self.means = torch.cat([self.means, new])

    def infer(self, tokens: Tokens) -> Outputs:
        features = F.normalize(self.tail(tokens), dim=1)
        return Outputs(features, features @ F.normalize(self.means, dim=1).T)


@pytest.mark.parametrize(("name", "views"), [("kmeans", 0), ("goal", 2)])
def test_views_are_banked_only_for_methods_that_train(
    name: str, views: int, tmp_path: Path
) -> None:
    bank = {"views": 2, "folder": str(tmp_path / "cache")}
    training = {"base_epochs": 1, "stage_epochs": 1}
    tree = {"method": {"name": name}, "bank": bank, "training": training}
    start(compose(tree), tmp_path / "out")
    shelves = [read_json(path)["view"] for path in (tmp_path / "cache").rglob("about.json")]
    assert shelves.count("clean") == 1 and len(shelves) == 1 + views


def test_a_method_may_learn_without_gradient_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = methods.MethodSpec(NearestMean, "class means")
    monkeypatch.setitem(methods.METHODS, "nearest-mean", spec)
    from goal.settings.settings import compose

    settings = compose({"method": {"name": "nearest-mean"}, "bank": {"views": 1}})
    summary = start(settings, tmp_path / "out")
    assert summary["stage0_all"] > 90
    assert (tmp_path / "out" / "history.jsonl").read_text() == ""


# -- with the number of new classes estimated --------------------------------------------------


@pytest.mark.parametrize("method", ["goal", "kmeans", "vb_cgcd"])
def test_a_run_can_count_the_new_classes_itself(method: str, tmp_path: Path) -> None:
    settings = small_settings("protocol.estimate_new=true")
    if method != "goal":
        recipe = read_settings(find_recipe(f"digits/{method}"))
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
    monkeypatch.setattr(Counter, "count", lambda self, tokens, index, most: 0)
    start(small_settings("protocol.estimate_new=true"), tmp_path / "run")
    records = read_jsonl(tmp_path / "run" / "results.jsonl")
    assert [record["num_found"] for record in records] == [4, 0, 0, 0]
    last = np.load(tmp_path / "run" / "stages" / "stage-3.npz", allow_pickle=False)
    assert last["predictions"].max() < 4
    assert {row["stage"] for row in read_jsonl(tmp_path / "run" / "history.jsonl")} == {0}
    assert "confident_size" not in records[1]
