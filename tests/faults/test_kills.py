"""kill -9 and power cuts at any write or moment: the result is that of an undisturbed run.

A handful here; `make torture` has hundreds.
"""

import random
from pathlib import Path

from tests.faults.nursery import Command, Plan, goal
from tests.faults.worlds import Work, assert_nothing_torn, live_through, run_arguments


def chosen_sites(writes: list[str], count: int, seed: int) -> list[str]:
    """Some of the places that are written to, in the order in which a run comes to them."""
    sites = list(dict.fromkeys(writes))
    return sorted(random.Random(seed).sample(sites, count), key=sites.index)


def test_killed_before_any_write_resumes_bit_for_bit(work: Work, tmp_path: Path) -> None:
    sites = chosen_sites(work.writes, 7, seed=1)
    outcomes = live_through(tmp_path, [Plan("kill", site=site) for site in sites])
    assert sum(outcome.killed for outcome in outcomes) >= 6
    assert work.essence(tmp_path) == work.reference


def test_a_power_cut_leaves_nothing_torn(work: Work, tmp_path: Path) -> None:
    synced = [site for site in work.writes if site.startswith("fsync") and "." in site]
    sites = chosen_sites(synced, 5, seed=2)
    plans = [Plan("tear", site=site, seed=number) for number, site in enumerate(sites)]
    outcomes = live_through(tmp_path, plans)
    assert sum(outcome.killed for outcome in outcomes) >= 4
    assert work.essence(tmp_path) == work.reference


def test_killed_at_random_moments_resumes_bit_for_bit(work: Work, tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(3):
        command = Command(tmp_path, run_arguments(tmp_path))
        command.kill_after(rng.uniform(0.2, 1.0))
        assert command.outcome().code in (0, -9)
        assert_nothing_torn(tmp_path)
    if (tmp_path / "out" / "settings.yaml").exists():
        assert goal(tmp_path, "resume", str(tmp_path / "out")).code == 0
    live_through(tmp_path, [])
    assert work.essence(tmp_path) == work.reference
