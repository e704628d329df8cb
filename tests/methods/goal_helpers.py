"""GOAL on planted classes, and what its tests do with it."""

from typing import Any

import torch
from torch import Tensor

from goal.methods.base import Batch, Stage
from goal.methods.goal import Goal
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import learn


def goal(name: str = "goal", **settings: Any) -> Goal:
    method = small_method(name, **settings)
    assert isinstance(method, Goal)
    return method


def begun(**settings: Any) -> tuple[Goal, Stage]:
    """GOAL after stage 0, at the beginning of the next."""
    method, stage = goal(**settings), next_stage()
    learn(method, base_stage())
    method.begin_stage(stage, torch.Generator().manual_seed(0))
    return method, stage


def batch_of(stage: Stage, count: int = 6) -> Batch:
    positions = torch.arange(count)
    return Batch(*stage.tokens.pair(positions, torch.Generator().manual_seed(0)), positions)


def numbers(tensor: Tensor) -> Any:
    return tensor.detach().double().numpy()
