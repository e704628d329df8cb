"""What a process uses while it works: CPU threads, memory, and a clock."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # numbers of options of glibc's mallopt
_KEPT = 2_000_000_000  # bytes, at most


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Compute on so many CPU threads, then on as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_memory() -> None:
    """Keep freed memory for the next array, for as long as the process lives (glibc; else nothing).

    Left alone, arrays above 32 MB are taken from the system and given back each time, and the
    system spends as long on clearing them as a small network on using them.
    """
    with suppress(OSError, AttributeError, TypeError):
        allocator = ctypes.CDLL(None).mallopt
        allocator(_MMAP_MAX, 0)
        allocator(_TRIM_THRESHOLD, _KEPT)


def forget_peak_memory() -> None:
    """Let the peak begin anew, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float | None:
    """Largest resident memory since the peak was forgotten, in MB; None where nothing tells it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(kilobytes[0]) / 1e3, 1) if kilobytes else None


class Pause:
    """Tells when so many seconds have passed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Begin to count anew."""
        self._began = time.monotonic()

    def over(self) -> bool:
        """Whether the time has passed."""
        return self.passed() >= self._seconds

    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began
