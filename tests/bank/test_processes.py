"""Processes share a bank, and a build that was killed resumes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import goal.bank.bank
from goal.backbone.tokens import Tokens
from goal.bank.shelf import inspect
from goal.storage.locks import held
from tests.bank.helpers import (
    CLEAN,
    Opened,
    Recorder,
    agrees,
    generator,
    make_images,
    open_bank,
    plain,
    same,
    shared_trunk,
)


def build_and_die(folder: Path) -> None:
    """Build a bank of 7 images and 2 views, and be killed in the sixth pass of the trunk."""
    calls = 0

    def die(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1 + 6:  # the first one asks for the shape of the tokens
            os.kill(os.getpid(), signal.SIGKILL)

    shared_trunk().register_forward_pre_hook(die)
    open_bank(folder, make_images(7), views=1)


def build_at_once(folder: Path, me: Path, other: Path) -> None:
    """Open a bank together with another process, and save what is read from it."""
    shared_trunk().register_forward_pre_hook(lambda *_: time.sleep(0.005))  # a longer build
    me.touch()
    while not other.exists():
        time.sleep(0.0001)
    opened = open_bank(folder, make_images(12), views=1)
    view, cleaned = opened.tokens.pair(torch.arange(12), generator(0))
    tokens = [view.normalised, view.cls, cleaned.normalised, cleaned.cls]
    torch.save([tokens, opened.computed, opened.reporter.of("warn")], me.with_suffix(".pt"))


def fork(work: Callable[..., None], *paths: Path) -> int:
    """Do the work in a process of its own; return its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        torch.set_num_threads(1)
        goal.bank.bank._CHUNK_BYTES = 0  # a chunk per image
        work(*paths)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def family(folder: Path) -> None:
    """Run the processes of the tests below, write their exit codes to a file."""
    one, two = folder / "one", folder / "two"
    processes = {
        "killed": fork(build_and_die, folder / "killed"),
        "one": fork(build_at_once, folder / "shared", one, two),
        "two": fork(build_at_once, folder / "shared", two, one),
    }
    codes = {
        name: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        for name, process in processes.items()
    }
    (folder / "codes.json").write_text(json.dumps(codes))


@dataclass
class Family:
    folder: Path
    codes: dict[str, int]
    complaints: str


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Real processes, forked from a new interpreter so that all share one slow import of torch."""
    folder = tmp_path_factory.mktemp("processes")
    source, here = Path(goal.__file__).parents[1], Path(__file__).parents[2]
    script = f"from tests.bank.test_processes import family, Path; family(Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(here)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return Family(folder, json.loads((folder / "codes.json").read_text()), done.stderr)


def test_a_killed_build_resumes(processes: Family) -> None:
    assert processes.codes["killed"] == -signal.SIGKILL, processes.complaints
    folder, images = processes.folder / "killed", make_images(7)
    kept = {shelf.about["view"]: shelf.rows for shelf in inspect(folder / "bank")}
    # The third clean row was handed to the writer, which may have died before it was written.
    assert kept in ({CLEAN: 2, 0: 2}, {CLEAN: 3, 0: 2})
    opened = open_bank(folder, images, views=1)
    assert opened.computed == 7 * 2 - sum(kept.values())
    assert not opened.reporter.of("warn")
    assert agrees(opened, images)
    assert open_bank(folder, images, views=1).computed == 0


def test_two_processes_at_once(processes: Family) -> None:
    assert (processes.codes["one"], processes.codes["two"]) == (0, 0), processes.complaints
    images, total = make_images(12), 0
    for name in ("one", "two"):
        tokens, computed, warnings = torch.load(processes.folder / f"{name}.pt")
        assert same(Tokens(*tokens[:2]), plain(images, range(12), 0), 2e-3)
        assert same(Tokens(*tokens[2:]), plain(images, range(12)), 2e-3)
        assert not warnings
        total += computed
    assert total == 12 * 2, "what one has made the other finds"


def test_a_shelf_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    """A shelf whose about.json is not there yet is damaged only if nobody holds the lock."""
    images, recorder = make_images(3), Recorder()
    open_bank(tmp_path, images)
    shelf = inspect(tmp_path / "bank")[0].folder
    content = (shelf / "about.json").read_bytes()
    result: list[Opened] = []
    waiting = threading.Thread(
        target=lambda: result.append(open_bank(tmp_path, images, reporter=recorder))
    )
    with held(shelf.parent / ".lock"):
        (shelf / "about.json").unlink()
        waiting.start()
        assert recorder.spoke.wait(timeout=20)
        (shelf / "about.json").write_bytes(content)
    waiting.join(timeout=20)
    assert "waiting" in recorder.of("say")[0]
    assert result and result[0].computed == 0
    assert not recorder.of("warn")
