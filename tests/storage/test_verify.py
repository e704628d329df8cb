"""`goal verify`: any flipped byte of a run, a bank or a base model is found and named."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest

from goal.cli import main
from goal.common.errors import GoalError
from goal.report.page import write_report
from goal.runs.run import resume, start
from goal.storage import manifest
from goal.storage.files import write_json
from goal.storage.manifest import MANIFEST
from goal.storage.seal import write_sealed
from goal.verify import verify
from tests.small_run import small_settings

FLIPS = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its report, and the bank and base model it made."""
    root = tmp_path_factory.mktemp("world")
    settings = small_settings(
        f"bank.folder={root / 'cache'}", "protocol.stages=1", "protocol.new_per_stage=2"
    )
    start(settings, root / "run")
    write_report([root / "run"], root / "run" / "report.html")
    return root


def files_of(world: Path) -> list[Path]:
    found = sorted(path for path in world.rglob("[!.]*") if path.is_file() and path.stat().st_size)
    assert {path.suffix for path in found} >= {".yaml", ".json", ".jsonl", ".pt", ".npz", ".bin"}
    return found


def test_what_was_just_written_verifies(world: Path) -> None:
    verdict = verify(world)
    assert (verdict.problems, verdict.unlisted) == ([], [])
    assert len(verdict.checked) == len(files_of(world))
    assert verdict.size == sum(path.stat().st_size for path in files_of(world))


def test_every_flipped_byte_is_found_and_named(world: Path) -> None:
    rng = random.Random(0)
    for path in files_of(world):
        content = path.read_bytes()
        if path.suffix == ".pt" and path.parent.name == "base":
            continue  # carries a checksum of its state, not of its container; tested below
        places = {0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(FLIPS))}
        for place in sorted(places):
            damaged = bytearray(content)
            damaged[place] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            problems = verify(path.parent if path.suffix == ".bin" else world / "run").problems
            if path.is_relative_to(world / "cache"):
                problems = verify(path.parent).problems
            assert problems, (path, place)
            named = path.parent if path.suffix == ".bin" else path
            assert all(str(named) in problem for problem in problems), (path, place, problems)
        path.write_bytes(content)
    assert verify(world).problems == []


def test_a_damaged_base_model_never_verifies_with_another_state(world: Path) -> None:
    from goal.storage import checkpoint

    (path,) = (world / "cache").glob("base/*.pt")
    content = path.read_bytes()
    before = checkpoint.digest(checkpoint.load(path))
    rng = random.Random(1)
    found = 0
    for _ in range(30):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        if verify(path.parent).problems:
            found += 1
        else:
            assert checkpoint.digest(checkpoint.load(path)) == before  # a byte that means nothing
    path.write_bytes(content)
    assert found > 20


def test_missing_and_unlisted_files_are_named(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world / "run", copy)
    (copy / "history.jsonl").unlink()
    (copy / "notes.txt").write_text("mine")
    verdict = verify(copy)
    assert [str(copy / "history.jsonl") in problem for problem in verdict.problems] == [True]
    assert verdict.unlisted == [copy / "notes.txt"]
    (copy / MANIFEST).unlink()
    assert MANIFEST in verify(copy).problems[0]
    with pytest.raises(GoalError, match="holds no run"):
        verify(tmp_path / "elsewhere")


def test_a_manifest_cannot_point_elsewhere(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world / "run", copy)
    (tmp_path / "secret").write_text("s")
    with pytest.raises(GoalError, match="leads out of its folder"):
        manifest.seal(copy, ["../secret"])
    content = {"format": 1, "files": {"../secret": manifest.facts(tmp_path / "secret")}}
    write_sealed(copy / MANIFEST, content)
    assert "leads out of its folder" in verify(copy).problems[0]


def test_a_run_under_way_verifies(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world / "run", copy)
    stages = [f"stages/{path.name}" for path in (copy / "stages").iterdir()]
    manifest.seal(copy, ["settings.yaml", "classes.json", *stages])
    (copy / "summary.json").unlink()
    verdict = verify(copy)
    assert verdict.problems == []
    content = bytearray((copy / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "checkpoint.pt").write_bytes(content)
    assert "checkpoint.pt" in verify(copy).problems[0]


def test_a_changed_judgement_of_a_model_is_named(tmp_path: Path) -> None:
    content = {"format": 1, "names": {"4": "early bird"}, "merged": {"5": 4}}
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path = tmp_path / "judgement.json"
    write_json(path, {**content, "sha256": own})
    assert verify(tmp_path).problems == []
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        (problem,) = verify(tmp_path).problems
        assert str(path) in problem


def test_the_command(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world / "run", copy)
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(copy)])
    assert stop.value.code == 0 and "all as they were written" in capsys.readouterr().out
    (copy / "results.jsonl").write_text("{}\n")
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(copy)])
    assert stop.value.code == 1 and "results.jsonl" in capsys.readouterr().err


def test_a_damaged_base_model_is_trained_again(world: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(world / "cache", cache)
    (path,) = cache.glob("base/*.pt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    settings = small_settings(
        f"bank.folder={cache}", "protocol.stages=1", "protocol.new_per_stage=2"
    )
    start(settings, tmp_path / "out")
    for name in ("results.jsonl", "history.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (world / "run" / name).read_bytes()
    assert verify(cache).problems == []


def test_a_run_killed_before_its_last_seal_is_sealed_by_resume(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world / "run", copy)
    (copy / MANIFEST).unlink()
    resume(copy)
    assert verify(copy).problems == []
