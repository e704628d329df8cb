"""What a process uses."""

import subprocess
import sys

import pytest

_COUNT = """
import resource, sys
import torch
from goal.common.process import keep_memory

def work():
    large = torch.ones(12_000_000)  # 48 MB: beyond what the allocator keeps by itself
    return (large * 2).sum()

if sys.argv[1] == "keep":
    keep_memory()
for _ in range(8):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages that Linux hands out")
def test_kept_memory_is_not_asked_for_again() -> None:
    found = {}
    for way in ("plain", "keep"):
        line = [sys.executable, "-c", _COUNT, way]
        result = subprocess.run(line, capture_output=True, text=True, check=True)
        found[way] = int(result.stdout)
    if found["plain"] < 20_000:
        pytest.skip("this allocator keeps memory by itself")
    assert found["keep"] < found["plain"] / 10
