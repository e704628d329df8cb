"""Locks on folders, which the operating system drops when their holder dies."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.storage.files import NO_LOCKS, open_own, sweep

if sys.platform == "win32":
    import msvcrt
    import time
else:
    import fcntl


class Busy(Exception):
    """Another process, or another thread, holds the lock."""


class Occupied(GoalError):
    """Another process is working in a folder; nothing was changed, and it can be tried again."""


@contextmanager
def held(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made if it does not exist and stays.

    Raises:
        Busy: Somebody else holds it, and `wait` is off.
        GoalError: The file is a link, or its file system has no locks.
    """
    with open_own(path) as stream:
        try:
            _lock(stream, wait)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            raise GoalError(
                f"The disk of {path.parent} has no file locks ({error.strerror}), without which "
                f"two processes could spoil each other's work. Nothing was changed. Choose a "
                f"folder on another disk; for the token bank, by bank.folder or GOAL_CACHE."
            ) from error
        yield


def _lock(stream: BinaryIO, wait: bool) -> None:
    """Take the lock of an open file; closing the file gives it back."""
    if sys.platform == "win32":
        while True:
            try:
                msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
                return
            except PermissionError:
                if not wait:
                    raise Busy from None
                time.sleep(0.05)
    try:
        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one to work in a folder; what killed writers left there is swept away."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder / ".lock", wait=False))
            sweep(folder)
        except Busy:
            raise Occupied(
                f"Another process is working in {folder}. Wait for it, or choose another folder."
            ) from None
        except OSError as error:
            raise GoalError(f"Cannot write to {folder}: {error}") from None
        yield


@contextmanager
def waiting_for(folder: Path, reporter: Reporter, what: str) -> Iterator[None]:
    """Hold the folder's lock, after waiting for whoever has it; `what` names it for people."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder / ".lock", wait=False))
        except Busy:
            reporter.say(f"Another process is writing to {what}; waiting for it.")
            stack.enter_context(held(folder / ".lock"))
        yield
