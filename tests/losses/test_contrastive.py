"""Contrastive losses against loops over the paper's equations, hand values and symmetries."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.losses.contrastive import info_nce, sup_con

Loss = Callable[[Tensor, Tensor], Tensor]


def unit(rows: int, width: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=rng, dtype=torch.float64), dim=1)


def loop(views: list[list[float]], positives: list[list[int]], temperature: float) -> float:
    """Mean over views of the mean over positives of -log(share among all other views)."""

    def share(i: int, j: int) -> float:
        dot = sum(a * b for a, b in zip(views[i], views[j], strict=True))
        return math.exp(dot / temperature)

    total = 0.0
    for i, friends in enumerate(positives):
        others = sum(share(i, j) for j in range(len(views)) if j != i)
        total -= sum(math.log(share(i, h) / others) for h in friends) / len(friends)
    return total / len(views)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([0.04, 0.07, 1.0]), st.integers(0, 99))
def test_info_nce_is_the_loop(batch: int, width: int, temperature: float, seed: int) -> None:
    first, second = unit(batch, width, seed), unit(batch, width, seed + 100)
    partners = [[(i + batch) % (2 * batch)] for i in range(2 * batch)]
    expected = loop([*first.tolist(), *second.tolist()], partners, temperature)
    assert info_nce(first, second, temperature).item() == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(1, 5),
    st.sampled_from([0.04, 0.07, 1.0]),
    st.integers(0, 99),
)
def test_sup_con_is_the_loop(labels: list[int], width: int, temperature: float, seed: int) -> None:
    first, second = unit(len(labels), width, seed), unit(len(labels), width, seed + 100)
    both = labels + labels
    positives = [
        [h for h in range(len(both)) if both[h] == both[i] and h != i] for i in range(len(both))
    ]
    expected = loop([*first.tolist(), *second.tolist()], positives, temperature)
    result = sup_con(first, second, torch.tensor(labels), temperature)
    assert result.item() == pytest.approx(expected, abs=1e-9)


def test_hand_value_of_two_orthogonal_pairs() -> None:
    views = torch.eye(2)
    # Each view sees its partner at cosine 1 and two strangers at cosine 0.
    expected = math.log((math.e + 2) / math.e)
    assert info_nce(views, views, 1.0).item() == pytest.approx(expected, abs=1e-6)
    assert sup_con(views, views, torch.tensor([0, 1]), 1.0).item() == pytest.approx(expected, 1e-6)


def both_losses(labels: list[int]) -> list[Loss]:
    return [
        lambda first, second: info_nce(first, second, 0.1),
        lambda first, second: sup_con(first, second, torch.tensor(labels), 0.1),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_order_of_images_and_of_views_does_not_matter(which: int) -> None:
    labels = [0, 1, 0, 2, 1]
    first, second = unit(5, 4, 1), unit(5, 4, 2)
    order = [3, 0, 4, 1, 2]
    value = both_losses(labels)[which](first, second)
    shuffled = both_losses([labels[i] for i in order])[which](first[order], second[order])
    swapped = both_losses(labels)[which](second, first)
    assert shuffled.item() == pytest.approx(value.item(), abs=1e-12)
    assert swapped.item() == pytest.approx(value.item(), abs=1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_both_views_get_the_gradient_that_finite_differences_give(which: int) -> None:
    loss = both_losses([0, 1, 0])[which]
    inputs = (unit(3, 3, 5).requires_grad_(), unit(3, 3, 6).requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)
    for gradient in torch.autograd.grad(loss(*inputs), inputs):
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("temperature", [0.04, 1e-3])
@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_identical_embeddings_give_a_uniform_softmax(temperature: float, labels: list[int]) -> None:
    views = torch.ones(4, 1).requires_grad_()
    for value in (
        info_nce(views, views, temperature),
        sup_con(views, views, torch.tensor(labels), temperature),
    ):
        assert value.item() == pytest.approx(math.log(7), abs=1e-5)
        assert bool(torch.autograd.grad(value, views)[0].isfinite().all())


def test_opposite_partners_at_a_cold_temperature_stay_finite() -> None:
    first = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    # Each view's partner has cosine -1; of the two others one has 1, the other -1.
    value = info_nce(first, -first, 0.04)
    assert value.item() == pytest.approx(50, abs=1e-4)
    assert bool(torch.autograd.grad(value, first)[0].isfinite().all())
