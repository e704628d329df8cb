"""Analytic alignment against scikit-learn's ridge regression."""

import torch
from sklearn.linear_model import Ridge

from goal.methods.parts.vertex_ridge import VertexRidge
from goal.numerics.simplex import UNOWNED

RNG = torch.Generator().manual_seed(0)
LABELS = torch.arange(60) % 3
FEATURES = torch.randn(3, 10, generator=RNG)[LABELS] + 0.3 * torch.randn(60, 10, generator=RNG)


def fitted() -> VertexRidge:
    ridge = VertexRidge(vertices=5, dim=8, gamma=0.5, seed=1)
    ridge.fit(FEATURES, LABELS, 3)
    return ridge


def test_the_map_is_that_of_ridge_regression() -> None:
    ridge = fitted()
    away = (FEATURES.double() - FEATURES.double().mean(dim=0)).numpy()
    targets = ridge.ledger.vertices[LABELS].double().numpy()
    penalty = 0.5 * (away**2).sum(axis=0).mean()
    oracle = Ridge(alpha=penalty, fit_intercept=False).fit(away, targets)
    assert torch.allclose(ridge.map, torch.from_numpy(oracle.coef_.T), atol=1e-9)


def test_adding_images_later_gives_what_all_at_once_would() -> None:
    whole, parts = fitted(), VertexRidge(vertices=5, dim=8, gamma=0.5, seed=1)
    parts.fit(FEATURES[:30], LABELS[:30], 3)
    parts.centre = whole.centre  # the centre is that of the first images
    parts.gram, parts.cross = parts.gram * 0, parts.cross * 0
    parts.add(FEATURES[:30], LABELS[:30])
    parts.add(FEATURES[30:], LABELS[30:])
    assert torch.allclose(whole.map, parts.map, atol=1e-10)


def test_images_of_a_class_lie_nearest_to_its_vertex() -> None:
    ridge = fitted()
    nearest = (ridge(FEATURES) @ ridge.ledger.vertices.T).argmax(dim=1)
    assert float((nearest == LABELS).float().mean()) > 0.95


def test_new_classes_claim_free_vertices_and_the_simplex_grows_when_they_run_out() -> None:
    ridge = fitted()
    fresh = torch.randn(40, 10, generator=RNG)
    ridge.claim(fresh, torch.arange(40) % 4, first=3, count=4)  # two are free
    owned = ridge.ledger.vertex_of(torch.arange(7))
    assert bool((owned != UNOWNED).all()) and len(owned.unique()) == 7


def test_classes_beyond_one_per_dimension_go_without_a_vertex() -> None:
    ridge = fitted()
    fresh = torch.randn(60, 10, generator=torch.Generator().manual_seed(5))
    ridge.claim(fresh, torch.arange(60) % 6, first=3, count=6)  # five dimensions are left
    owned = ridge.ledger.vertex_of(torch.arange(9))
    assert bool((owned[:3] == torch.arange(3)).all())
    assert int((owned[3:] != UNOWNED).sum()) == 5 and len(ridge.ledger.free()) == 0
    ridge.claim(fresh, torch.arange(60) % 2, first=9, count=2)
    assert bool((ridge.ledger.vertex_of(torch.tensor([9, 10])) == UNOWNED).all())
    assert ridge(fresh).shape == (60, 8)
