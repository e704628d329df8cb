"""Every method trains a convolutional last block as it trains any other tail."""

import pytest
import torch
from torch import nn

from goal.backbone.tail import BlockTail, Tail
from goal.common.errors import GoalError
from goal.methods.base import infer_all
from goal.methods.registry import METHODS
from goal.testing import planted
from goal.testing.planted import WIDTH, base_stage, next_stage, small_method
from goal.testing.teaching import TEST, learn


def block_tail() -> Tail:
    """A convolution over the 2 x 2 map of planted tokens, started at random from a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        block = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU())
    return BlockTail(block, WIDTH)


@pytest.mark.parametrize("name", METHODS.shipped)
def test_a_method_learns_its_stages_on_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "small_tail", block_tail)
    method = small_method(name)
    before = {key: value.clone() for key, value in method.tail.state_dict().items()}
    if name == "promptccd":  # its prompts are tokens, and a map has no place for more
        with pytest.raises(GoalError, match=r"backbone\.tail=added"):
            learn(method, base_stage())
        return
    learn(method, base_stage())
    learn(method, next_stage())
    assert len(method.predict(infer_all(method, TEST))) == len(TEST)
    after = method.tail.state_dict()
    moved = any(not torch.equal(before[key], after[key]) for key in before)
    assert moved == method.trains(0)
