"""PromptCCD: the pool against scipy, what prompts do to tokens, and when the pool is fitted."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import multivariate_normal
from torch import Tensor

from goal.backbone.tokens import Tokens
from goal.learning.shared_base import base_settings
from goal.methods.base import Batch, Stage, infer_all
from goal.methods.promptccd import PromptCCD, PromptCCDSettings, PromptPool
from goal.methods.vanilla_gcd import VanillaGCD
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail
from goal.testing.teaching import TEST, learn
from tests.methods.test_frost import matched_accuracy, seeded


def make(**overrides: Any) -> PromptCCD:
    settings = PromptCCDSettings.parse({"name": "promptccd", **SMALL, **overrides})
    return PromptCCD.build(settings, small_tail(), CLASSES, seeded()).eval()


def clusters(count: int, width: int = 4) -> tuple[Tensor, Tensor]:
    """Points around far centres, and the centres."""
    centres = 3 * torch.eye(width)[:count]
    points = centres.repeat_interleave(40, dim=0)
    return points + 0.1 * torch.randn(len(points), width, generator=seeded()), centres


# -- the pool ---------------------------------------------------------------------------------


def test_the_pool_finds_planted_components() -> None:
    points, centres = clusters(3)
    pool = PromptPool(4)
    pool.fit(points, 3, 1e-4, seeded())
    order = torch.cdist(centres, pool.means).argmin(dim=1)
    assert sorted(order.tolist()) == [0, 1, 2]
    np.testing.assert_allclose(pool.means[order], centres, atol=0.06)
    np.testing.assert_allclose(pool.variances, 0.01, rtol=0.4)
    np.testing.assert_allclose(pool.weights, 1 / 3, rtol=1e-3)


def test_components_are_ranked_by_weight_times_density() -> None:
    pool = PromptPool(3)
    pool.means = torch.randn(6, 3, generator=seeded(1))
    pool.variances = torch.rand(6, generator=seeded(2)) + 0.1
    pool.weights = torch.rand(6, generator=seeded(3)).softmax(dim=0)
    queries = torch.randn(5, 3, generator=seeded(4))
    expected = np.stack(
        [
            multivariate_normal(mean, variance * np.eye(3)).logpdf(queries) + np.log(weight)
            for mean, variance, weight in zip(
                pool.means.numpy(), pool.variances.numpy(), pool.weights.numpy(), strict=True
            )
        ],
        axis=1,
    )
    ours = pool.log_joint(queries).numpy()
    # Equal up to the constant that all components share.
    np.testing.assert_allclose(ours - expected, (ours - expected)[0, 0], atol=1e-5)
    best = np.argsort(-expected, axis=1)[:, :2]
    np.testing.assert_allclose(pool.choose(queries, 2), pool.means.numpy()[best])


def test_samples_have_the_moments_of_the_mixture() -> None:
    pool = PromptPool(2)
    pool.means = torch.tensor([[5.0, 0.0], [-5.0, 0.0]])
    pool.variances = torch.tensor([1.0, 0.25])
    pool.weights = torch.tensor([0.75, 0.25])
    samples = pool.sample(20_000, seeded())
    right = samples[:, 0] > 0
    assert right.float().mean().item() == pytest.approx(0.75, abs=0.015)
    np.testing.assert_allclose(samples[right].std(dim=0), [1, 1], rtol=0.03)
    np.testing.assert_allclose(samples[~right].std(dim=0), [0.5, 0.5], rtol=0.05)
    np.testing.assert_allclose(samples[right].mean(dim=0), [5, 0], atol=0.05)


def test_there_are_never_more_components_than_points() -> None:
    pool = PromptPool(4)
    pool.fit(clusters(2)[0][:3], 10, 1e-3, seeded())
    assert len(pool) == 3
    pool.fit(clusters(2)[0][:1], 10, 1e-3, seeded())
    assert len(pool) == 3  # one point is no mixture: the earlier one stays
    assert pool.choose(torch.zeros(2, 4), 5).shape == (2, 3, 4)


# -- prompts ----------------------------------------------------------------------------------


def test_prompts_are_layer_normalised_means_behind_the_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = make(prompts=2)
    learn(method, base_stage())
    tokens = TEST.clean(torch.arange(4))
    seen: list[Tokens] = []
    tail = method.tail.forward

    def watched(given: Tokens) -> Tensor:
        seen.append(given)
        return tail(given)

    monkeypatch.setattr(method.tail, "forward", watched)
    batch = Batch(tokens, tokens, torch.arange(4))
    with torch.no_grad():
        embeddings = method.embed(batch)[0]
    plain, prompted = (Tokens(each.normalised[:4], each.cls[:4]) for each in seen)
    assert torch.equal(plain.normalised, tokens.normalised)
    assert torch.equal(prompted.normalised[:, :4], tokens.normalised)
    assert torch.equal(prompted.cls, tokens.cls)
    with torch.no_grad():
        queries = F.normalize(tail(tokens), dim=1)
        means = method.pool.choose(queries, 2)
        for added, mean in zip(prompted.normalised[:, 4:], means, strict=True):
            centred = mean - mean.mean(dim=1, keepdim=True)
            expected = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
            torch.testing.assert_close(added, expected)
        expected = F.normalize(method.projector(tail(prompted)), dim=1)
        torch.testing.assert_close(embeddings, expected)
    assert not torch.allclose(F.normalize(tail(prompted), dim=1), queries, atol=1e-3)


def test_evaluation_is_without_prompts() -> None:
    method, tokens = make(), TEST.clean(torch.arange(4))
    learn(method, base_stage())
    assert len(method.pool)
    with torch.no_grad():
        expected = F.normalize(method.tail(tokens), dim=1)
        torch.testing.assert_close(method.infer(tokens).features, expected)


def test_without_a_pool_it_is_vanilla_gcd() -> None:
    method, tokens = make(), TEST.clean(torch.arange(4))
    with torch.no_grad():
        ours, plain = method.infer(tokens), VanillaGCD.infer(method, tokens)
    assert torch.equal(ours.features, plain.features)
    assert base_settings(PromptCCD, method.settings)["family"] == "promptccd"


# -- when it is fitted, and on what -----------------------------------------------------------


def fits(method: PromptCCD, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, int]]:
    """Record the features and the number of components of every fit."""
    calls: list[tuple[Tensor, int]] = []
    fit = method.pool.fit

    def record(features: Tensor, components: int, floor: float, rng: torch.Generator) -> None:
        calls.append((features, components))
        fit(features, components, floor, rng)

    monkeypatch.setattr(method.pool, "fit", record)
    return calls


def test_the_pool_is_fitted_every_few_epochs_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = make(refit_every=3)
    calls = fits(method, monkeypatch)
    learn(method, base_stage(epochs=7))
    assert len(calls) == 4  # epochs 0, 3 and 6, and the end
    assert {components for _, components in calls} == {3}
    learn(method, next_stage(epochs=2))
    assert len(calls) == 6 and calls[-1][1] == 5


def test_samples_of_the_previous_pool_take_part_in_every_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, stage = make(replayed=50), next_stage(epochs=2)
    learn(method, base_stage())
    expected = method.pool.sample(50, after_begin_stage(stage))
    calls = fits(method, monkeypatch)
    learn(method, stage)
    for features, _ in calls:
        assert len(features) == len(stage.tokens) + 50
        assert torch.equal(features[len(stage.tokens) :], expected)
    assert torch.equal(method.past, expected)
    forgetful = make(replayed=0)
    learn(forgetful, base_stage())
    learn(forgetful, stage)
    assert len(forgetful.past) == 0


def after_begin_stage(stage: Stage) -> torch.Generator:
    """The generator as `learn` seeds it, once VanillaGCD has begun the stage."""
    rng = seeded()
    make(replayed=0).begin_stage(stage, rng)
    return rng


def test_planted_new_classes_are_found() -> None:
    method, stage = make(), next_stage(epochs=10)
    learn(method, base_stage(epochs=20))
    learn(method, stage)
    assert infer_all(method, stage.tokens).scores is None
    assert matched_accuracy(method, stage) > 0.8
