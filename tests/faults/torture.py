"""``make torture``: kills, faults, bad input and flipped bytes by the hundred, with figures.

Every phase stops when its share of the time is over; the figures say how far it came. The exit
code is 1 if anything was lost, torn, wrong or unexplained.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from goal.verify import verify
from tests.faults.fuzz import TARGETS
from tests.faults.nursery import Command, Kind, Outcome, Plan, goal
from tests.faults.strangers import VICTIM, attack
from tests.faults.worlds import (
    WORKS,
    Work,
    assert_nothing_torn,
)

HANG_SECONDS = 60
_OTHER: tuple[Kind, ...] = ("readonly", "clock")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Torture:
    """The figures so far, and what went wrong."""

    def __init__(self, folder: Path, minutes: float, seed: int) -> None:
        self.folder = folder
        self.seconds = 60 * minutes
        self.rng = random.Random(seed)
        self.figures: Counter[str] = Counter()
        self.failures: list[str] = []
        self._worlds = 0
        self._last = folder / "none"

    def place(self) -> Path:
        """An empty folder."""
        self._worlds += 1
        (place := self.folder / f"world-{self._worlds}").mkdir(parents=True)
        return place

    def world(self, work: Work) -> Path:
        """A folder where the work can begin; the last one goes."""
        shutil.rmtree(self._last, ignore_errors=True)
        self._last = self.place()
        work.set_up(self._last)
        return self._last

    @contextmanager
    def expecting(self, what: str) -> Iterator[None]:
        """Keep a failure for the end instead of stopping."""
        try:
            yield
        except Exception:
            self.failures.append(f"{what}\n{traceback.format_exc()}")
            say(f"FAILED: {self.failures[-1]}")

    def phase(self, share: float, name: str, steps: Iterator[None]) -> None:
        """Take steps until there are none, or the phase's share of the time is over."""
        began = time.monotonic()
        for _ in steps:
            if time.monotonic() - began > share * self.seconds:
                say(f"{name}: time is over")
                break
        say(f"{name}: {time.monotonic() - began:.0f} s, {dict(self.figures)}")


def strike(torture: Torture, work: Work, plans: list[Plan]) -> list[Outcome]:
    """Let plans strike one after the other in a fresh world, then finish and compare."""
    root = torture.world(work)
    outcomes = []
    with torture.expecting(f"{work.name}: {plans}"):
        for plan in plans:
            outcomes.append(goal(root, *work.arguments(root), plan=plan))
            assert_nothing_torn(root)
        finish(work, root)
    return outcomes


def finish(work: Work, root: Path) -> None:
    """Run undisturbed; the result must be that of a world where nothing ever happened."""
    last = goal(root, *work.arguments(root))
    assert last.code == 0, last.output
    assert work.essence(root) == work.reference
    assert verify(root).problems == []


def kills_at_writes(torture: Torture, works: list[Work]) -> Iterator[None]:
    """Die before every kind of write in turn, at a random one of its kind; and in its midst."""
    for work in works:
        for site, count in Counter(work.writes).items():
            kinds: tuple[Kind, ...] = ("kill",)
            if site.startswith("fsync"):
                kinds = ("kill", "tear")
            for kind in kinds:
                plan = Plan(kind, torture.rng.randrange(count), site, torture.rng.randrange(9**9))
                for outcome in strike(torture, work, [plan]):
                    torture.figures[f"{kind}s at a write"] += outcome.killed
                yield


def kills_at_moments(torture: Torture, works: list[Work], total: int) -> Iterator[None]:
    """kill -9 at random moments until there were `total` kills of all kinds."""
    while kills(torture) < total:
        work = torture.rng.choice(works)
        root = torture.world(work)
        with torture.expecting(f"{work.name} killed at random moments"):
            for _ in range(torture.rng.randint(4, 20)):
                command = Command(root, work.arguments(root))
                command.kill_after(torture.rng.uniform(0.0, 1.3 * work.seconds))
                torture.figures["kills at a moment"] += command.outcome().killed
                assert_nothing_torn(root)
            finish(work, root)
        yield


def kills(torture: Torture) -> int:
    return sum(
        count for name, count in torture.figures.items() if name.startswith(("kills", "tears"))
    )


def full_disks(torture: Torture, works: list[Work]) -> Iterator[None]:
    """No space left, from every kind of write on."""
    for work in works:
        for site, count in Counter(work.writes).items():
            plan = Plan("full", torture.rng.randrange(count), site, torture.rng.randrange(9**9))
            for outcome in strike(torture, work, [plan]):
                with torture.expecting(f"{work.name}, full at {site}"):
                    assert_explained(outcome, "No space left")
                torture.figures["full disks, injected"] += outcome.code == 1
            yield


def assert_explained(outcome: Outcome, why: str) -> None:
    assert outcome.code in (0, 1), outcome.output
    assert "Traceback" not in outcome.output
    assert outcome.code == 0 or why in outcome.output, outcome.output


def real_disks(torture: Torture, works: list[Work]) -> Iterator[None]:
    """Small and read-only file systems of the kernel's own, where mounting is permitted."""
    for work in works:
        for kilobytes in (0, 4, 40, 120, 400, 700):
            root = torture.place()
            disk = root / ("model" if work.name in ("discover", "teach") else "out")
            disk.mkdir()
            if not mounted(disk, "size=1g"):
                say("mounting is not permitted here: file systems left out")
                return
            try:
                with torture.expecting(f"{work.name} on {kilobytes} KB"):
                    on_small_disk(torture, work, root, disk, kilobytes)
            finally:
                subprocess.run(["umount", str(disk)], check=True)
            yield


def on_small_disk(torture: Torture, work: Work, root: Path, disk: Path, kilobytes: int) -> None:
    work.set_up(root)
    used = sum(path.stat().st_blocks for path in disk.rglob("*")) // 2
    remount(disk, f"size={max(4, used + kilobytes)}k")
    outcome = goal(root, *work.arguments(root))
    assert_explained(outcome, "No space left")
    assert_nothing_torn(root)
    torture.figures["full disks, real"] += outcome.code == 1
    remount(disk, "size=1g,ro")
    outcome = goal(root, *work.arguments(root))
    assert_explained(outcome, "Read-only file system")
    torture.figures["read-only disks, real"] += outcome.code == 1
    remount(disk, "size=1g,rw")
    finish(work, root)


def mounted(root: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)]
    return subprocess.run(command, capture_output=True).returncode == 0


def remount(root: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(root)], check=True)


def other_faults(torture: Torture, works: list[Work]) -> Iterator[None]:
    """Read-only folders, clocks that go backwards, two processes at once."""
    for work in works:
        plans = [Plan(kind, seed=torture.rng.randrange(9**9)) for kind in _OTHER]
        for plan in plans:
            outcomes = strike(torture, work, [plan])
            torture.figures["read-only folders and wrong clocks"] += len(outcomes)
            yield
        for _ in range(3):
            root = torture.world(work)
            with torture.expecting(f"two at once: {work.name}"):
                pair = []
                for _ in range(2):
                    pair.append(Command(root, work.arguments(root)))
                    time.sleep(torture.rng.uniform(0, work.seconds / 2))
                for outcome in [command.outcome() for command in pair]:
                    assert_explained(outcome, "Another process is working in")
                finish(work, root)
                torture.figures["pairs of processes"] += 1
            yield


def flipped_bytes(torture: Torture, works: list[Work], per_file: int) -> Iterator[None]:
    """Flip single bits all over finished runs; `verify` must name the file each time."""
    for work in works:
        root = torture.world(work)
        finish(work, root)
        visible = sorted(root.rglob("[!.]*"))
        files = [path for path in visible if path.is_file() and path.stat().st_size]
        for path in files:
            content = path.read_bytes()
            for _ in range(per_file):
                place = torture.rng.randrange(len(content))
                damaged = bytearray(content)
                damaged[place] ^= 1 << torture.rng.randrange(8)
                path.write_bytes(damaged)
                with torture.expecting(f"flip {path.relative_to(root)} at {place}"):
                    problems = verify(path.parent if path.suffix in (".bin", ".pt") else root)
                    vouched = path.parent.name != "base"  # those vouch for their state alone
                    assert not vouched or any(path.parent.name in p for p in problems.problems)
                    torture.figures["flips found"] += bool(problems.problems)
                torture.figures["bytes flipped"] += 1
            path.write_bytes(content)
            yield


def strangers(torture: Torture, works: list[Work], attempts: int) -> Iterator[None]:
    """Links, pipes, devices and vast files in the place of ours: the victim must stay whole."""
    for _ in range(attempts):
        work = torture.rng.choice(works)
        root = torture.world(work)
        with torture.expecting(f"{work.name} in a stranger's folder"):
            what, outcome, victim = attack(torture.rng, work, root)
            torture.figures["strangers' folders tried"] += 1
            torture.figures["strangers' folders refused"] += outcome.code == 1
            assert victim == VICTIM, (what, victim, outcome.output)
            assert outcome.code in (0, 1) and "Traceback" not in outcome.output, (what, outcome)
        yield


def bad_inputs(torture: Torture, attempts: int) -> Iterator[None]:
    """Feed every reader with damaged files."""

    def hangs(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"no end after {HANG_SECONDS} s")

    signal.signal(signal.SIGALRM, hangs)
    targets = {name: prepare(torture.place()) for name, prepare in TARGETS.items()}
    for number in range(attempts):
        for name, attempt in targets.items():
            seed = torture.rng.randrange(9**12)
            with torture.expecting(f"bad {name}, seed {seed}"):
                signal.alarm(HANG_SECONDS)
                outcome = attempt(random.Random(seed))
                torture.figures["inputs tried"] += 1
                torture.figures["inputs refused"] += outcome == "error"
                signal.alarm(0)
        if number % 20 == 0:
            yield
    signal.alarm(0)


def main() -> int:
    """Run all phases and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--inputs", type=int, default=400, help="per kind of input")
    parser.add_argument("--flips", type=int, default=40, help="per file")
    parser.add_argument("--strangers", type=int, default=150, help="folders with planted files")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goal-torture-") as folder:
        torture = Torture(Path(folder), given.minutes, given.seed)
        works = [prepare(torture.place()) for prepare in WORKS]
        phases: list[tuple[float, str, Callable[[], Iterator[None]]]] = [
            (0.25, "kills at writes", lambda: kills_at_writes(torture, works)),
            (0.30, "kills at moments", lambda: kills_at_moments(torture, works, given.kills)),
            (0.15, "full disks", lambda: full_disks(torture, works)),
            (0.08, "real disks", lambda: real_disks(torture, works)),
            (0.05, "other faults", lambda: other_faults(torture, works)),
            (0.07, "flipped bytes", lambda: flipped_bytes(torture, works, given.flips)),
            (0.05, "strangers", lambda: strangers(torture, works[1:], given.strangers)),
            (0.05, "bad inputs", lambda: bad_inputs(torture, given.inputs)),
        ]
        for share, name, begin in phases:
            torture.phase(share, name, begin())
    say(f"\n{'kills survived':35} {kills(torture):6}")
    for name, count in torture.figures.items():
        say(f"{name:35} {count:6}")
    say(f"{'failures':35} {len(torture.failures):6}")
    return 1 if torture.failures else 0


if __name__ == "__main__":
    sys.exit(main())
