"""kill -9, power cuts and full disks while a model discovers; and flipped bytes afterwards."""

import random
from pathlib import Path

import pytest

from goal.verify import verify
from tests.faults.nursery import Plan, goal
from tests.faults.test_kills import chosen_sites
from tests.faults.worlds import Work, assert_nothing_torn, discovering


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return discovering(tmp_path_factory.mktemp("discover"))


def test_an_interrupted_discovery_ends_like_an_undisturbed_one(work: Work, tmp_path: Path) -> None:
    work.set_up(tmp_path)
    struck = 0
    for number, site in enumerate(chosen_sites(work.writes, 7, seed=6)):
        plan = Plan(("kill", "tear", "full")[number % 3], site=site, seed=number)
        outcome = goal(tmp_path, *work.arguments(tmp_path), plan=plan)
        assert outcome.code in (0, 1, -9) and "Traceback" not in outcome.output, outcome.output
        assert outcome.code != 1 or "No space left" in outcome.output, outcome.output
        struck += outcome.code != 0
        assert_nothing_torn(tmp_path)
    assert struck >= 5
    last = goal(tmp_path, *work.arguments(tmp_path))
    assert last.code == 0, last.output
    assert work.essence(tmp_path) == work.reference


def test_flipped_bytes_of_a_model_are_named(work: Work, tmp_path: Path) -> None:
    work.set_up(tmp_path)
    model, rng = tmp_path / "model", random.Random(7)
    assert verify(model).problems == []
    files = [path for path in model.rglob("[!.]*") if path.is_file() and path.stat().st_size]
    assert len(files) > 5
    for path in sorted(files):
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        problems = verify(model).problems
        assert problems and all(str(path) in problem for problem in problems), (path, problems)
        path.write_bytes(content)
