"""Several ranks against one process: every method, a whole run, and a rank that dies."""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import goal
from goal import distributed
from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.bank.shelf import inspect
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.distributed import (
    Split,
    agree,
    average,
    by_first,
    collect,
    joined,
    ranks,
    split_work,
    wait,
)
from goal.learning.trainer import StageTrainer
from goal.methods.base import Method, Projector, Stage, infer_all
from goal.methods.registry import METHODS
from goal.settings.training import TrainingSettings
from goal.storage.files import read_jsonl
from goal.testing.planted import PlantedTokens, base_stage, next_stage, small_method
from tests.small_run import as_flags

HERE = Path(__file__).parents[2]
TRAINING = TrainingSettings(base_lr=0.05, stage_lr=0.05, batch_size=7)


# What each of the processes below does; rank None is a process on its own.


def doubled(stage: Stage) -> Stage:
    assert isinstance(stage.tokens, PlantedTokens)
    views = [Tokens(v.normalised.double(), v.cls.double()) for v in stage.tokens.views]
    stage.tokens.views = views
    return stage


def learn_all(folder: Path, rank: int | None) -> None:
    """Train every method on two stages in double precision, and save what it has become."""
    for name in METHODS:
        method = small_method(name).double()
        for stage in (doubled(base_stage(epochs=2)), doubled(next_stage(epochs=2))):
            rng = torch.Generator().manual_seed(0)
            method.begin_stage(stage, rng)
            trainer = StageTrainer(method, stage, TRAINING, rng)
            if method.trains(stage.index):
                fit(method, stage, trainer)
            method.end_stage(stage, rng)
        outputs = infer_all(method, stage.tokens)
        seen = {key: value for key, value in vars(outputs).items() if value is not None}
        trained = dict(method.named_parameters())
        torch.save(
            {
                "state": method.state_dict(),
                # Other state may be one of many that mean the same, such as eigenvectors.
                "meaning": {key: value.detach() for key, value in (trained | seen).items()},
                "predicted": method.predict(outputs),
            },
            folder / f"{name}-{rank}.pt",
        )


def fit(method: Method, stage: Stage, trainer: StageTrainer) -> None:
    method.fit_stage(stage, lambda: trainer.run(lambda _: None, Reporter()))


def talk(folder: Path, rank: int | None) -> None:
    """Try every way of sharing on values that differ between ranks."""
    here = ranks()
    assert (here.rank, here.count, here.first) == (rank, 2, rank == 0)
    assert collect(f"from {rank}") == ["from 0", "from 1"]
    assert by_first(lambda: f"from {rank}") == "from 0"
    values = [torch.full((2,), float(here.rank)), torch.tensor(rank == 0), torch.empty(0)]
    agree(values)
    assert values[0].tolist() == [0, 0] and bool(values[1])
    gradients = [torch.full((3,), 1.0 + here.rank), None, torch.tensor(4.0 * here.rank)]
    average(gradients)
    assert gradients[0] is not None and gradients[0].tolist() == [1.5] * 3
    assert gradients[1] is None and gradients[2] is not None and float(gradients[2]) == 2
    with joined("cpu") as device:  # it has joined already
        assert device == torch.device("cpu")
    wait()


def lose(folder: Path, rank: int | None) -> None:
    """Die while the other rank waits; it must say so instead of waiting for ever."""
    if rank == 1:
        os._exit(7)
    try:
        collect("anybody?")
    except GoalError as error:
        (folder / "lost.txt").write_text(str(error))


def fork(work: Callable[[Path, int | None], None], folder: Path, rank: int | None) -> int:
    """Do the work in a process of its own; return its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        torch.set_num_threads(1)
        if rank is not None:
            store = f"file://{folder / work.__name__}"
            patience = timedelta(seconds=100)
            dist.init_process_group("gloo", store, patience, world_size=2, rank=rank)
        work(folder, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def family(folder: Path) -> None:
    """Run the processes of the tests below, write their exit codes to a file."""
    together = ((work, rank) for work in (learn_all, talk, lose) for rank in (0, 1))
    jobs: list[tuple[Callable[[Path, int | None], None], int | None]]
    jobs = [(learn_all, None), *together]
    processes = {f"{work.__name__}-{rank}": fork(work, folder, rank) for work, rank in jobs}
    codes = {
        name: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        for name, process in processes.items()
    }
    (folder / "codes.json").write_text(json.dumps(codes))


def environment() -> dict[str, str]:
    source = Path(goal.__file__).parents[1]
    paths = os.pathsep.join([str(source), str(HERE)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def relatives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real processes, forked from a new interpreter so that all share one slow import of torch."""
    folder = tmp_path_factory.mktemp("ranks")
    script = f"from tests.runs.test_distributed import family, Path; family(Path({str(folder)!r}))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    codes = json.loads((folder / "codes.json").read_text())
    expected = {name: 7 if name == "lose-1" else 0 for name in codes}
    assert codes == expected, done.stderr
    return folder


@pytest.mark.parametrize("name", sorted(METHODS))
def test_two_ranks_learn_what_one_process_learns(name: str, relatives: Path) -> None:
    alone, first, second = (torch.load(relatives / f"{name}-{rank}.pt") for rank in (None, 0, 1))
    for key in alone["state"]:
        assert torch.equal(first["state"][key], second["state"][key]), key
    assert alone["meaning"].keys() == first["meaning"].keys()
    for key, one in alone["meaning"].items():
        close = 1e-8 * max(1, float(one.norm()))
        assert torch.allclose(one, first["meaning"][key], rtol=1e-6, atol=close), key
    assert torch.equal(alone["predicted"], first["predicted"])


def test_ranks_share_values(relatives: Path) -> None:
    codes = json.loads((relatives / "codes.json").read_text())
    assert codes["talk-0"] == codes["talk-1"] == 0


def test_a_lost_rank_is_an_error(relatives: Path) -> None:
    assert "Lost contact with another rank" in (relatives / "lost.txt").read_text()


# One process on its own.


def test_alone_nothing_is_shared() -> None:
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    split = Split(5)
    assert split.mine.tolist() == [0, 1, 2, 3, 4]
    assert split.gather(values) is values and split.take(values) is values
    assert collect("me") == ["me"] and by_first(lambda: 3) == 3
    gradient = values.clone()
    average([gradient, None])
    agree([gradient])
    wait()
    assert torch.equal(gradient, values)
    model = nn.ModuleDict({"linear": nn.Linear(3, 2)})
    with split_work(model, 5, Tail, Projector), joined("cpu") as device:
        assert device.type == "cpu" and not model["linear"]._forward_hooks


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_every_row_belongs_to_one_rank(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[Tensor] = []
    for rank in range(count):
        monkeypatch.setattr("goal.distributed.ranks", lambda r=rank: distributed.Ranks(r, count))
        parts.append(Split(size).mine)
    assert len({len(part) for part in parts}) == 1, "all ranks have as much to do"
    assert torch.cat(parts)[:size].tolist() == list(range(size))
    assert int(torch.cat(parts).max()) == size - 1


# Whole runs, as people start them.


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return subprocess.run(
        [*command, "2", "-m", "goal", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )


def rows_of(cache: Path) -> dict[tuple[str, bytes], bytes]:
    """Every row of a bank by its shelf and image."""
    found = {}
    for shelf in inspect(cache / "bank"):
        digests = np.fromfile(shelf.folder / "rows.bin", dtype=[("d", "V16"), ("c", "<u4")])["d"]
        content = (shelf.folder / "tokens.bin").read_bytes()
        size = len(content) // len(digests)
        for row, digest in enumerate(digests):
            found[shelf.folder.name, bytes(digest)] = content[row * size : (row + 1) * size]
    return found


def test_torchrun_gives_the_results_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goal.cli import main

    flags = as_flags("training.base_epochs=2", "training.stage_epochs=2", "protocol.stages=1")
    flags += as_flags("protocol.new_per_stage=2")
    done = torchrun("run", "--dataset", "digits", "--out", str(tmp_path / "two"), *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    two = rows_of(Path(os.environ["GOAL_CACHE"]))
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "other-cache"))
    with pytest.raises(SystemExit) as ended:
        main(["run", "--dataset", "digits", "--out", str(tmp_path / "one"), *flags])
    assert not ended.value.code
    assert rows_of(tmp_path / "other-cache") == two, "each row once, with the same bytes"
    ours, theirs = (
        {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*")}
        for name in ("one", "two")
    )
    assert ours == theirs
    for one, both in zip(
        *(read_jsonl(tmp_path / name / "history.jsonl") for name in ("one", "two")), strict=True
    ):
        assert both == pytest.approx(one, rel=1e-3, abs=1e-4)
    for one, both in zip(
        *(read_jsonl(tmp_path / name / "results.jsonl") for name in ("one", "two")), strict=True
    ):
        assert both["all"] == pytest.approx(one["all"], abs=2.0), "one or two images at most"
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert summary["ranks"] == 2
    assert done.stdout.count("Report:") == 1, "one rank speaks"


def test_a_failing_rank_ends_the_run_with_its_message(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in ("ant", "bee", "cat"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    for path in sorted((tmp_path / "photos" / "ant").iterdir()):
        path.write_bytes(path.read_bytes()[:60])
    flags = ["--dataset", "folder", "--data-root", str(tmp_path / "photos"), "--method", "kmeans"]
    flags += ["--backbone", "digits-vit", "--set", "protocol.base_classes=2", "protocol.stages=1"]
    flags += ["transform.image_size=16", "transform.resize=16"]
    done = torchrun("run", *flags, "--out", str(tmp_path / "run"))
    assert done.returncode != 0
    assert "Cannot read the image" in done.stderr and "on rank" in done.stderr


def test_other_commands_refuse_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from goal.cli.common import refuse_ranks

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GoalError, match=r"`goal bench` runs in one process"):
        refuse_ranks("bench")
    monkeypatch.setenv("WORLD_SIZE", "1")
    refuse_ranks("bench")
