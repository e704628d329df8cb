"""Locks on folders, which the operating system drops when their holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from goal.common.errors import GoalError
from goal.common.progress import Reporter


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the operating system drops when the process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise GoalError(
            f"Another process is working in {folder}. Wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise GoalError(f"Cannot write to {folder}: {error}") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def waiting_for(folder: Path, reporter: Reporter, what: str) -> Iterator[None]:
    """Hold the folder's lock, after waiting for whoever has it; `what` names it for people."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.say(f"Another process is writing to {what}; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
