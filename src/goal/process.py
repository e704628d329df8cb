"""What a process holds while it works: the folder of its run, and a number of CPU threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from goal.errors import GoalError
from goal.sharing import ranks


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the operating system drops when the process dies.

    Of several ranks the first one holds it; the others write nothing.
    """
    if not ranks().first:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise GoalError(
            f"Another process is working in {folder}. Wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise GoalError(f"Cannot write to {folder}: {error}") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Compute on so many CPU threads, then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
