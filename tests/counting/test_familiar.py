"""Whether all images may be of known classes, checked against scipy and planted classes."""

import numpy as np
import pytest
import torch
from scipy.stats import fisher_exact

from goal.counting.familiar import CHANCE, chance_of_known, distances, measure_edge
from tests.counting.test_estimators import KNOWN, known, planted, stage


def test_distances_are_those_of_mahalanobis() -> None:
    features, _ = stage(1)
    means, within = known()
    cov = within.within_DD.numpy()
    mixed = 0.5 * cov + 0.5 * np.trace(cov) / len(cov) * np.eye(len(cov))
    inverse = np.linalg.inv(mixed)
    gaps = features.double().numpy()[:, None] - means.double().numpy()
    expected = np.sqrt(np.einsum("nkd,de,nke->nk", gaps, inverse, gaps)).min(axis=1)
    found = distances(features.double(), means.double(), within.within_DD)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_the_chance_is_fishers() -> None:
    features, _ = stage(1)
    means, within = known()
    edge = measure_edge(*planted(dict.fromkeys(range(KNOWN), 60)), KNOWN)
    far = distances(features.double(), means.double(), within.within_DD) > edge.distance
    table = [[int(far.sum()), int((~far).sum())], [int(edge.beyond), int(edge.inside)]]
    expected = fisher_exact(np.array(table), alternative="greater").pvalue
    found = chance_of_known(features, means, within.within_DD, edge)
    assert found == pytest.approx(expected, rel=1e-6) and found < CHANCE
    again, _ = planted(dict.fromkeys(range(KNOWN), 80), seed=2)
    assert chance_of_known(again, means, within.within_DD, edge) > CHANCE


def test_too_few_labelled_images_say_nothing() -> None:
    features, labels = planted({0: 2, 1: 2})
    edge = measure_edge(features, labels, 2)
    assert int(edge.inside) == 0
    assert chance_of_known(features, features[:2], torch.eye(features.shape[1]), edge) == 0
