"""Processes that die, tear files or lose their disk on cue.

A fork server imports everything once; every command then runs in a fork of it, which costs
milliseconds. Inside the fork an audit hook sees each write before it happens: each opening for
writing, renaming, making of folders, and (by a patch) each fsync. There a `Plan` strikes.
"""

import errno
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal

PRELOADED = [
    "goal.cli",
    "goal.runs.run",
    "goal.models.model",
    "goal.report.page",
    "goal.report.compare",
    "sklearn.datasets",
    "transformers.models.vit.modeling_vit",
]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(PRELOADED)
DEADLINE = 240.0

Kind = Literal["none", "kill", "tear", "full", "readonly", "clock"]


@dataclass(frozen=True)
class Plan:
    """What goes wrong: at the `at`-th write (of those at `site`, if one is named).

    ``kill`` dies before the write; ``tear`` leaves a random part of it and dies, as when the power
    fails; ``full`` and ``readonly`` let it and all later ones fail; ``clock`` turns back time.
    """

    kind: Kind = "none"
    at: int = 0
    site: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit code (negative: the signal), output, and its writes in order."""

    code: int
    output: str
    writes: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Command:
    """A `goal` command in a process of its own, inside the world `root`."""

    def __init__(self, root: Path, arguments: list[str], plan: Plan | None = None) -> None:
        self._log = root.with_name(f"{root.name}-log-{time.monotonic_ns()}")
        self._log.touch()
        self.process: ForkServerProcess = CONTEXT.Process(
            target=_live, args=(root, arguments, plan or Plan(), self._log)
        )
        self.process.start()

    def kill_after(self, seconds: float) -> None:
        """kill -9 unless it ends before."""
        self.process.join(seconds)
        self.process.kill()

    def outcome(self) -> Outcome:
        """Wait for the end."""
        self.process.join(DEADLINE)
        if self.process.is_alive():
            self.process.kill()
            raise AssertionError(f"hangs: {self._log.read_text()}")
        writes_path = self._log.with_suffix(".writes")
        writes = writes_path.read_text().splitlines() if writes_path.exists() else []
        output = self._log.read_text(errors="replace")
        self._log.unlink()
        writes_path.unlink(missing_ok=True)
        assert self.process.exitcode is not None
        return Outcome(self.process.exitcode, output, writes)


def goal(root: Path, *arguments: str, plan: Plan | None = None) -> Outcome:
    """Run a command to its end, or to the one that the plan has for it."""
    return Command(root, list(arguments), plan).outcome()


def _live(root: Path, arguments: list[str], plan: Plan, log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ |= {"GOAL_CACHE": str(root / "cache"), "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    import torch

    from goal.cli import main

    torch.set_num_threads(1)
    fate = _Fate(root, plan)
    fate.watch()
    try:
        main(arguments)
    finally:
        fate.over = True
        log.with_suffix(".writes").write_text("".join(f"{site}\n" for site in fate.seen))


class _Fate:
    """Sees every write of this process under `root`, and strikes at the planned one."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root = f"{root}/"
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.seen: list[str] = []
        self.counts: Counter[str] = Counter()
        self.struck = False
        self.over = False
        self.durable: dict[str, int] = {}

    def watch(self) -> None:
        """Install the hook; it stays until the process ends."""
        if self.plan.kind == "clock":
            _turn_back_time(self.rng)
        fsync = os.fsync

        def watched_fsync(handle: int) -> None:
            path = str(Path(f"/proc/self/fd/{handle}").readlink())
            self.event("fsync", path, lambda: self.cut(path))
            fsync(handle)

        plain_open = os.open

        def watched_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
            if dir_fd is not None and _writes(None, flags):  # the interpreter tells the name alone
                self.event("open", str(Path(f"/proc/self/fd/{dir_fd}").readlink() / path))
            return plain_open(path, flags, mode, dir_fd=dir_fd)

        os.fsync = watched_fsync  # type: ignore[assignment]
        os.open = watched_open
        sys.addaudithook(self.hook)

    def hook(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before each operation."""
        if name == "open" and _writes(arguments[1], arguments[2]):
            self.event("open", arguments[0])
        elif name == "os.rename" and arguments[2] != -1:
            folder = Path(f"/proc/self/fd/{arguments[2]}").readlink()
            self.event("rename", str(folder / arguments[0]))
        elif name in ("os.rename", "os.mkdir"):
            self.event(name.removeprefix("os."), arguments[0])

    def event(self, name: str, path: Any, tear: Callable[[], None] | None = None) -> None:
        """Count a write, and strike if its time has come."""
        if self.over or not isinstance(path, (str, Path)) or not str(path).startswith(self.root):
            return
        site = f"{name} {_site(str(path).removeprefix(self.root))}"
        self.seen.append(site)
        if name == "open" and Path(path).exists():
            self.durable[str(path)] = Path(path).stat().st_size
        counted = "" if self.plan.site is None else self.plan.site
        if counted in ("", site):
            self.counts[counted] += 1
            self.struck |= self.counts[counted] > self.plan.at
        if self.struck:
            self.strike(name, tear)

    def strike(self, name: str, tear: Callable[[], None] | None) -> None:
        """Let the fault happen."""
        kind = self.plan.kind
        if kind in ("tear", "full") and tear is not None:
            self.over = True
            tear()
            self.over = False
        if kind in ("kill", "tear"):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in ("full", "readonly"):
            code = errno.ENOSPC if kind == "full" else errno.EROFS
            raise OSError(code, os.strerror(code))

    def cut(self, path: str) -> None:
        """Leave a part of what was not yet durable."""
        if Path(path).is_file():
            size = Path(path).stat().st_size
            least = min(self.durable.get(path, 0), size)
            os.truncate(path, self.rng.randint(least, size))


def _writes(mode: str | None, flags: int) -> bool:
    return (
        bool(flags & (os.O_WRONLY | os.O_RDWR)) if mode is None else bool(set(mode) & set("wax+"))
    )


def _site(path: str) -> str:
    """Name of a place, whatever its hashes and numbers."""
    return re.sub(r"[0-9a-f]{16,}|\d+", "#", path)


def _turn_back_time(rng: random.Random) -> None:
    now = 2e9

    def earlier() -> float:
        nonlocal now
        now += rng.choice((-3600.0, -0.5, 0.1, 30.0))
        return now

    time.time = earlier
    time.monotonic = earlier
