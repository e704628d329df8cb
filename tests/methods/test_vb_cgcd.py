"""VB-CGCD: densities, PCA and covariances against scipy and scikit-learn; discovery; stopping."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from torch import Tensor

from goal.methods.base import infer_all
from goal.methods.vb_cgcd import VBCGCD, Gaussians, VBCGCDSettings
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail
from goal.testing.teaching import TEST, learn
from tests.methods.test_frost import matched_accuracy, seeded


def make(**overrides: Any) -> VBCGCD:
    settings = VBCGCDSettings.parse({"name": "vb_cgcd", **SMALL, **overrides})
    return VBCGCD.build(settings, small_tail(), CLASSES, seeded()).eval()


def features_of(method: VBCGCD, tokens: Any) -> Tensor:
    return infer_all(method, tokens).features.double()


# -- Gaussians --------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.01, 0.4, 1.0])
def test_gaussians_are_shrunk_sample_moments_and_scipy_gives_their_densities(
    shrinkage: float,
) -> None:
    points = torch.randn(60, 4, generator=seeded(), dtype=torch.float64)
    classes = torch.arange(60) % 3
    spread = torch.randn(4, 4, generator=seeded(1), dtype=torch.float64)
    usual = spread @ spread.T + torch.eye(4)
    fitted = Gaussians.fit(points, classes, 3, shrinkage, usual)
    queries = torch.randn(7, 4, generator=seeded(2), dtype=torch.float64)
    densities = fitted.log_densities(queries).numpy()
    for label in range(3):
        mine = points[classes == label].numpy()
        sample = np.cov(mine.T, bias=True)
        covariance = (1 - shrinkage) * sample + shrinkage * usual.numpy()
        expected = multivariate_normal(mine.mean(axis=0), covariance).logpdf(queries.numpy())
        np.testing.assert_allclose(densities[:, label], expected, rtol=1e-9)
        size = np.linalg.slogdet(covariance).logabsdet
        assert fitted.log_determinants()[label].item() == pytest.approx(size, rel=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_samples_still_give_a_finite_density(count: int) -> None:
    points = torch.ones(count, 5, dtype=torch.float64)
    nothing = torch.zeros(count, dtype=torch.int64)
    fitted = Gaussians.fit(points, nothing, 1, 0.1, torch.eye(5, dtype=torch.float64))
    assert bool(fitted.log_densities(torch.zeros(3, 5, dtype=torch.float64)).isfinite().all())


# -- stage 0 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "kept"), [(5, 5), (384, 12)])
def test_axes_are_the_principal_components_of_the_base_features(asked: int, kept: int) -> None:
    method, stage = make(dimensions=asked), base_stage()
    learn(method, stage)
    features = features_of(method, stage.tokens)
    expected = PCA(kept).fit(features.numpy())
    assert method.axes.shape == (12, kept)
    ours = ((features - method.centre) @ method.axes).numpy()
    theirs = expected.transform(features.numpy())
    large = expected.explained_variance_ > 1e-6 * expected.explained_variance_[0]
    np.testing.assert_allclose(np.abs(ours)[:, large], np.abs(theirs)[:, large], atol=1e-6)


def test_scores_are_log_densities_of_scipy() -> None:
    method, stage = make(shrinkage=0.3, dimensions=6), base_stage()
    learn(method, stage)
    reduced = ((features_of(method, stage.tokens) - method.centre) @ method.axes).numpy()
    labels = stage.labels.numpy()
    means = np.stack([reduced[labels == label].mean(axis=0) for label in range(3)])
    away = reduced - means[labels]
    pooled = away.T @ away / len(away)
    within = 0.9 * pooled + 0.1 * np.trace(pooled) / 6 * np.eye(6)
    test = ((features_of(method, TEST) - method.centre) @ method.axes).numpy()
    scores = infer_all(method, TEST).scores
    assert scores is not None
    for label in range(3):
        sample = np.cov(reduced[labels == label].T, bias=True)
        covariance = 0.7 * sample + 0.3 * within
        expected = multivariate_normal(means[label], covariance).logpdf(test)
        np.testing.assert_allclose(scores[:, label], expected, rtol=1e-4, atol=1e-2)
    assert torch.equal(method.predict(infer_all(method, TEST)), scores.argmax(dim=1))


def test_gradient_steps_are_for_stage_0_only_and_can_be_left_out() -> None:
    trained, frozen = make(), make(train_base=False)
    assert trained.trains(0) and not trained.trains(1)
    assert not frozen.trains(0)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    before = {key: value.clone() for key, value in frozen.tail.state_dict().items()}
    learn(frozen, base_stage())
    learn(frozen, next_stage())
    for key, value in frozen.tail.state_dict().items():
        assert torch.equal(value, before[key])
    assert frozen.num_classes == 5


def test_the_classifier_answers_while_stage_0_trains() -> None:
    method, stage = make(), base_stage()
    method.begin_stage(stage, seeded())
    scores = infer_all(method, stage.tokens).scores
    assert scores is not None and scores.shape[1] == method.num_classes == 3


# -- discovery --------------------------------------------------------------------------------


def test_known_gaussians_and_axes_never_change() -> None:
    method = make()
    learn(method, base_stage())
    names = ("centre", "axes", "within", "means", "whiteners")
    before = {name: getattr(method, name).clone() for name in names}
    learn(method, next_stage())
    for name in names:
        assert torch.equal(getattr(method, name)[: len(before[name])], before[name])
    assert len(method.means) == len(method.whiteners) == 5


def crowded(**overrides: Any) -> tuple[VBCGCD, Tensor, Tensor]:
    """A method that knows two classes in the plane, and a stage of mostly two new ones."""
    method = make(**overrides)
    centres = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]]).double()
    method.within = 0.09 * torch.eye(2, dtype=torch.float64)
    method.centre, method.axes = torch.zeros(2).double(), torch.eye(2).double()
    labels = torch.arange(200) % 2
    classes = torch.cat([torch.arange(40) % 2, torch.arange(360) % 2 + 2])
    noise = 0.3 * torch.randn(600, 2, generator=seeded(), dtype=torch.float64)
    method._keep(method._fit(centres[labels] + noise[:200], labels, 2))
    return method, centres[classes] + noise[200:], classes


def test_relabelling_gives_known_images_back_and_finds_the_planted_gaussians() -> None:
    method, points, classes = crowded(shrinkage=0.1)
    new = method._discover(points, 2, seeded())
    order = torch.cdist(torch.tensor([[0.0, 4.0], [4.0, 4.0]]).double(), new.means_Kd)
    assert sorted(order.argmin(dim=1).tolist()) == [0, 1]
    assert float(order.amin(dim=1).max()) < 0.15
    predicted = method._known().join(new).log_densities(points).argmax(dim=1)
    assert (predicted[classes < 2] == classes[classes < 2]).float().mean() > 0.99
    assert (predicted[classes >= 2] >= 2).float().mean() > 0.99


def test_it_stops_as_soon_as_new_gaussians_are_as_small_as_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, points, _ = crowded(shrinkage=0.1)
    sizes = []
    refit = method._refit

    def record(*given: Any) -> Gaussians:
        new = refit(*given)
        sizes.append(new.log_determinants().mean().item())
        return new

    monkeypatch.setattr(method, "_refit", record)
    new = method._discover(points, 2, seeded())
    known = method._known().log_determinants().mean().item()
    start, *rounds = sizes  # the first fit is that of the mixture
    assert 1 <= len(rounds) <= method.settings.rounds
    assert start > known
    assert all(size > known for size in rounds[:-1])
    assert new.log_determinants().mean().item() == rounds[-1]


def test_the_mixture_sees_all_dimensions_and_its_clusters_stay() -> None:
    """New classes that PCA cannot tell apart are still two, by the dimension it dropped."""
    method, points, classes = crowded(shrinkage=0.1, rounds=1)
    method.axes = torch.eye(3).double()[:, :2]
    method.centre = torch.zeros(3).double()
    points[classes >= 2, 0] = points[classes >= 2, 0] % 0.5  # both new classes at one place
    hidden = torch.where(classes == 3, 9.0, 0.0).double()[:, None]
    features = torch.cat([points, hidden], dim=1)
    new = method._discover(features, 2, seeded())
    found = sorted(new.means_Kd.tolist())
    first = method._fit(points, (classes == 3).long(), 2)  # the clusters: everything else, and 3
    named = method._known().join(first).log_densities(points).argmax(dim=1) >= 2
    expected = [points[named & mine].mean(dim=0) for mine in (classes != 3, classes == 3)]
    np.testing.assert_allclose(found, sorted(row.tolist() for row in expected), atol=1e-9)


def test_a_new_gaussian_that_nobody_is_predicted_to_be_stays_as_it_was() -> None:
    method, points, classes = crowded()
    before = method._known()
    labels = torch.where(classes == 2, 0, -1)  # none of the second
    after = method._refit(points, labels, before)
    assert torch.equal(after.means_Kd[1], before.means_Kd[1])
    assert torch.equal(after.whiteners_Kdd[1], before.whiteners_Kdd[1])
    np.testing.assert_allclose(after.means_Kd[0], points[classes == 2].mean(dim=0))


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_samples_than_new_classes(count: int) -> None:
    method, points, _ = crowded()
    new = method._discover(points[-count:], 3, seeded())
    assert new.means_Kd.shape == (3, 2)
    assert bool(new.log_densities(points).isfinite().all())


@pytest.mark.parametrize("train_base", [True, False])
def test_planted_new_classes_are_found(train_base: bool) -> None:
    method, stage = make(train_base=train_base), next_stage()
    learn(method, base_stage(epochs=20))
    learn(method, stage)
    assert matched_accuracy(method, stage) > 0.8
