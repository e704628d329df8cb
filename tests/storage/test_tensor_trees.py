"""A tree that strangers read comes back whole, or with a message."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from goal.common.errors import GoalError
from goal.storage.checkpoint import digest
from goal.storage.tensor_trees import packed, unpacked

WHERE = Path("model.safetensors")
STATE: dict[str, Any] = {
    "method": OrderedDict(
        weights=torch.arange(6.0).reshape(2, 3).T,
        half=torch.tensor([float("nan"), -0.0, float("inf")], dtype=torch.bfloat16),
        none=torch.empty(0, 4),
        number=torch.tensor(7),
        yes=torch.tensor([True, False]),
    ),
    "a/b": {3: "three", "x": None, "y": [1, 2.5, True, (torch.ones(1),)]},
}


def test_every_bit_kind_and_order_comes_back() -> None:
    content, plain = packed(STATE)
    found = unpacked(content, plain, WHERE)
    assert digest(found) == digest(STATE)
    assert list(found["method"]) == list(STATE["method"])
    assert found["a/b"][3] == "three" and isinstance(found["a/b"]["y"][3], tuple)
    assert found["method"]["half"].view(torch.int16).tolist() == [0x7FC0, -0x8000, 0x7F80]


def test_tensors_that_share_memory_are_written_apart() -> None:
    whole = torch.arange(4.0)
    state = {"all": whole, "part": whole[1:3]}
    assert digest(unpacked(*packed(state), WHERE)) == digest(state)


def test_nothing_else_is_written() -> None:
    with pytest.raises(TypeError, match="method/made is a set"):
        packed({"method": {"made": {1}}})


def test_damage_is_told() -> None:
    content, plain = packed(STATE)
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for bytes_, told in ((flipped, plain), (content[:40], plain), (b"", plain), (content, {})):
        with pytest.raises(GoalError, match="damaged"):
            unpacked(bytes_, told, WHERE)
    deep: dict[str, Any] = {"value": 1}
    for _ in range(100_000):
        deep = {"list": [deep]}
    with pytest.raises(GoalError, match="damaged"):
        unpacked(content, {"tree": deep, "digest": ""}, WHERE)
    with pytest.raises(GoalError, match="damaged"):
        unpacked(content, {**plain, "tree": {"call": "os.system"}}, WHERE)
