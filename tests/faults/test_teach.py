"""kill -9, power cuts and full disks while a model is taught."""

from pathlib import Path

import pytest

from goal.verify import verify
from tests.faults.nursery import Plan, goal
from tests.faults.test_kills import chosen_sites
from tests.faults.worlds import Work, assert_nothing_torn, correcting


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return correcting(tmp_path_factory.mktemp("teach"))


def test_an_interrupted_teaching_ends_like_an_undisturbed_one(work: Work, tmp_path: Path) -> None:
    work.set_up(tmp_path)
    struck = 0
    for number, site in enumerate(chosen_sites(work.writes, 6, seed=6)):
        plan = Plan(("kill", "tear", "full")[number % 3], site=site, seed=number)
        outcome = goal(tmp_path, *work.arguments(tmp_path), plan=plan)
        assert outcome.code in (0, 1, -9) and "Traceback" not in outcome.output, outcome.output
        assert outcome.code != 1 or "No space left" in outcome.output, outcome.output
        struck += outcome.code != 0
        assert_nothing_torn(tmp_path)
    assert struck >= 3
    last = goal(tmp_path, *work.arguments(tmp_path))
    assert last.code == 0, last.output
    assert work.essence(tmp_path) == work.reference
    assert verify(tmp_path / "model").problems == []
