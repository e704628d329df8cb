"""Alignment against a loop, the squared distance, and the gradient by hand."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from goal.losses.alignment import dot_alignment


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 99))
def test_it_is_the_loop_and_the_squared_distance_up_to_scale(
    count: int, width: int, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    pair = torch.randn(2, count, width, generator=rng, dtype=torch.float64)
    embeddings, directions = F.normalize(pair, dim=2)
    dots = [
        sum(e * p for e, p in zip(row, target, strict=True))
        for row, target in zip(embeddings.tolist(), directions.tolist(), strict=True)
    ]
    value = dot_alignment(embeddings, directions).item()
    assert value == pytest.approx(-sum(dots) / count, abs=1e-12)
    distances = (embeddings - directions).norm(dim=1).square()
    assert distances.mean().item() == pytest.approx(2 + 2 * value, abs=1e-12)
    order = torch.randperm(count, generator=rng)
    assert dot_alignment(embeddings[order], directions[order]).item() == pytest.approx(value)


def test_extremes_and_gradient() -> None:
    directions = torch.eye(3)
    embeddings = directions.clone().requires_grad_()
    value = dot_alignment(embeddings, directions)
    assert value.item() == -1
    assert dot_alignment(-directions, directions).item() == 1
    value.backward()
    assert embeddings.grad is not None
    torch.testing.assert_close(embeddings.grad, -directions / 3)
