"""The threshold of likeness against counting every pair."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goal.methods.parts.likeness import break_even_cosine


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 99))
def test_as_many_pairs_lie_above_as_there_are_pairs_of_one_class(
    images: int, classes: int, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(images, 5, generator=rng, dtype=torch.float64)
    labels = torch.randint(classes, (images,), generator=rng)
    cosines, same = [], 0
    for i in range(images):
        for j in range(i):
            lengths = features[i].norm() * features[j].norm()
            cosines.append(float(features[i] @ features[j] / lengths))
            same += int(labels[i] == labels[j])
    found = break_even_cosine(features, labels, rng)
    if same == 0:
        assert found == 1
    else:
        assert sum(cosine >= found - 1e-12 for cosine in cosines) == same


def test_it_parts_classes_that_can_be_parted() -> None:
    features = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-0.1, 1.0], [0.1, 1.0]])
    found = break_even_cosine(features, torch.tensor([0, 0, 1, 1]), torch.Generator())
    assert 0.2 < found < 0.99
