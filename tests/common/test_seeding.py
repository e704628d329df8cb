"""Streams of random numbers follow their seed and names, and touch no global generator."""

import random
from typing import Any

import numpy as np
import torch

from goal.common.seeding import stream


def numbers(seed: int, *parts: str | int) -> tuple[float, ...]:
    return tuple(torch.rand(4, generator=stream(seed, *parts)).tolist())


def test_same_names_same_numbers_and_other_names_other_numbers() -> None:
    assert numbers(0, "stage", 1) == numbers(0, "stage", 1)
    keys: list[tuple[Any, ...]] = [(seed, "stage", t) for seed in range(20) for t in range(20)]
    keys += [(0,), (0, "stage"), (0, "method"), (0, 1, "stage"), (1, 0, "stage"), (0, "", "stage")]
    keys += [(0, "sta", "ge"), (0, "stage1"), (0, "stage/1"), (10, "stage", 11, 0)]
    assert len({numbers(*key) for key in keys}) == len(keys)


def test_no_global_generator_is_touched_or_asked() -> None:
    before = (torch.get_rng_state(), random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    first = numbers(3, "a")
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    torch.manual_seed(99)
    assert numbers(3, "a") == first
    torch.set_rng_state(before[0])
