"""The key of shared base models."""

import pytest

from goal.learning.shared_base import base_key


def test_the_key_depends_on_what_computes_the_last_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for threads in (1, 2):
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        keys |= {base_key({"seed": 0}), base_key({"seed": 0})}
    assert len(keys) == 2
