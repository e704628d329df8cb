"""SimGCD keeps nothing; SimGCD+ keeps the scores of known classes; both cool their teacher."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import rel_entr, softmax
from torch import Tensor

from goal.common.errors import GoalError
from goal.losses.contrastive import info_nce, sup_con
from goal.methods.base import Batch, LabelledBatch, LabelledStage, Stage, infer_all
from goal.methods.simgcd import SimGCD, SimGCDPlus, cooled
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail
from goal.testing.teaching import learn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(kind: type[SimGCD] = SimGCD, **overrides: Any) -> Any:
    settings = kind.Settings.parse({"name": "simgcd", **SMALL, **overrides})
    return kind.build(settings, small_tail(), CLASSES, seeded()).eval()


def batch_of(stage: Stage, count: int = 7) -> Batch:
    positions = torch.arange(count)
    first, second = stage.tokens.pair(positions, seeded())
    if isinstance(stage, LabelledStage):
        return LabelledBatch(first, second, positions, stage.labels[positions])
    return Batch(first, second, positions)


def shake(module: torch.nn.Module) -> None:
    """Move every trained weight a little."""
    rng = seeded(8)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn(weight.shape, generator=rng))


def cross_distillation(scores: Tensor, teacher: float) -> float:
    """Each view towards the other, at student temperature 0.1, by numpy."""
    first, second = (half.detach().double().numpy() for half in scores.chunk(2))
    total = 0.0
    for own, other in ((first, second), (second, first)):
        target, student = softmax(other / teacher, axis=1), softmax(own / 0.1, axis=1)
        total -= (target * np.log(student)).sum(axis=1).mean() / 2
    return total


def entropy_of_mean(scores: Tensor) -> float:
    mean = softmax(scores.detach().double().numpy() / 0.1, axis=1).mean(axis=0)
    return float(-(mean * np.log(mean)).sum())


def assert_terms(terms: dict[str, Tensor], expected: dict[str, float]) -> None:
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("epochs", [0, 1, 2, 30])
def test_the_teacher_cools_linearly(epochs: int) -> None:
    expected = np.concatenate([np.linspace(0.07, 0.04, epochs), np.full(5, 0.04)])
    found = [cooled(0.07, 0.04, epochs, epoch) for epoch in range(epochs + 5)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [SimGCD, SimGCDPlus])
def test_every_stage_cools_afresh_and_the_epoch_is_part_of_the_state(kind: type[SimGCD]) -> None:
    method = make(kind)
    for stage in (base_stage(), next_stage()):
        method.begin_stage(stage, seeded())
        for epoch, temperature in ((0, 0.07), (29, 0.04), (90, 0.04)):
            method.begin_epoch(stage, epoch, seeded())
            assert method.target_temperature() == pytest.approx(temperature)
            assert int(method.state_dict()["epoch"]) == epoch
            batch = batch_of(stage)
            share = 0.65 if stage.index == 0 else 1.0
            expected = share * cross_distillation(method.see(batch).scores, temperature)
            term = method.losses(batch, seeded())["self_distillation"]
            assert term.item() == pytest.approx(expected, rel=1e-4)
        method.end_stage(stage, seeded())


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_base_objective(epsilon: float) -> None:
    method, stage = make(entropy_weight=epsilon), base_stage()
    method.begin_stage(stage, seeded())
    batch = batch_of(stage)
    assert isinstance(batch, LabelledBatch)
    views = method.see(batch)
    first, second = views.embeddings.chunk(2)
    picked = F.cross_entropy(views.scores / 0.1, torch.cat([batch.labels, batch.labels]))
    expected = {
        "self_distillation": 0.65 * cross_distillation(views.scores, 0.07),
        "entropy": -0.65 * epsilon * entropy_of_mean(views.scores),
        "classification": 0.35 * picked.item(),
        "contrast": 0.65 * info_nce(first, second, 1.0).item(),
        "sup_contrast": 0.35 * sup_con(first, second, batch.labels, 0.07).item(),
    }
    assert_terms(method.losses(batch, seeded()), expected)


def test_incremental_objective_has_one_entropy_over_all_classes() -> None:
    method, stage = make(), next_stage()
    learn(method, base_stage())
    method.begin_stage(stage, seeded())
    method.begin_epoch(stage, 0, seeded())
    batch = batch_of(stage)
    views = method.see(batch)
    first, second = views.embeddings.chunk(2)
    assert views.scores.shape[1] == 5
    expected = {
        "self_distillation": cross_distillation(views.scores, 0.07),
        "entropy": -2 * entropy_of_mean(views.scores),
        "contrast": info_nce(first, second, 1.0).item(),
    }
    assert_terms(method.losses(batch, seeded()), expected)


@pytest.mark.parametrize("kind", [SimGCD, SimGCDPlus])
def test_without_a_weight_there_is_no_entropy(kind: type[SimGCD]) -> None:
    method = make(kind, entropy_weight=0.0)
    for stage in (base_stage(), next_stage()):
        method.begin_stage(stage, seeded())
        assert "entropy" not in method.losses(batch_of(stage), seeded())
        method.end_stage(stage, seeded())


def test_simgcd_keeps_nothing() -> None:
    method = make()
    learn(method, base_stage())
    learn(method, next_stage())
    assert len(method.prototypes) == 0 and method.radius == 0
    batch = batch_of(next_stage())
    before = method.losses(batch, seeded())
    for weight in method.teacher.parameters():
        weight.fill_(torch.nan)  # nobody looks
    for name, term in method.losses(batch, seeded()).items():
        assert torch.equal(term, before[name])


@pytest.mark.parametrize(
    ("key", "value"),
    [("replay_weight", 1.0), ("distillation_weight", 1.0), ("head_init", "novelty")],
)
def test_retention_and_other_heads_cannot_be_had(key: str, value: object) -> None:
    with pytest.raises(GoalError, match=key):
        make(SimGCD, **{key: value})


def test_new_heads_are_random_and_do_not_look_at_the_images() -> None:
    heads = []
    for counts in ({3: 12}, {0: 6, 1: 6, 2: 6}):
        method = make()
        learn(method, base_stage())
        method.begin_stage(next_stage(counts), seeded(3))
        heads.append(method.classifier.weight.detach()[3:])
    assert torch.equal(heads[0], heads[1])
    torch.testing.assert_close(heads[0].norm(dim=1), torch.full((2,), 3**-0.5))
    torch.testing.assert_close(method.weights(), method.classifier.weight.detach())


def begun_plus(**overrides: Any) -> SimGCDPlus:
    method = make(SimGCDPlus, **overrides)
    learn(method, base_stage())
    method.begin_stage(next_stage(), seeded())
    assert isinstance(method, SimGCDPlus)
    return method


def test_lwf_is_zero_and_pulls_nowhere_until_something_moves() -> None:
    method, batch = begun_plus(), batch_of(next_stage())
    term = method.losses(batch, seeded())["logit_distillation"]
    assert term.item() == pytest.approx(0, abs=1e-6)
    trained = [weight for weight in method.parameters() if weight.requires_grad]
    for gradient in torch.autograd.grad(term, trained, allow_unused=True):
        assert gradient is None or gradient.abs().max() < 1e-4
    shake(method)
    assert method.losses(batch, seeded())["logit_distillation"].item() > 1e-3


def test_lwf_is_the_divergence_over_known_classes_from_the_model_before_the_stage() -> None:
    previous = make(SimGCDPlus)
    learn(previous, base_stage())
    method, batch = begun_plus(lwf_weight=3.0, lwf_temperature=2.0), batch_of(next_stage())
    shake(method)
    target = softmax(previous.see(batch).scores.detach().double().numpy() / 0.1 / 2, axis=1)
    own = method.see(batch).scores.detach().double().numpy()[:, :3]
    divergence = rel_entr(target, softmax(own / 0.1 / 2, axis=1)).sum(axis=1).mean()
    terms = method.losses(batch, seeded())
    assert terms["logit_distillation"].item() == pytest.approx(3 * 4 * divergence, rel=1e-4)
    # The other terms are SimGCD's.
    plain = SimGCD.incremental_objective(method, method.see(batch), batch)
    assert terms.keys() - plain.keys() == {"logit_distillation"}
    for name, term in plain.items():
        assert torch.equal(term, terms[name])


def test_lwf_appears_only_after_stage_0_and_only_with_a_weight() -> None:
    fresh, stage = make(SimGCDPlus), base_stage()
    fresh.begin_stage(stage, seeded())
    assert "logit_distillation" not in fresh.losses(batch_of(stage), seeded())
    off = begun_plus(lwf_weight=0.0)
    assert "logit_distillation" not in off.losses(batch_of(next_stage()), seeded())


def test_the_previous_model_is_state_and_follows_stage_after_stage() -> None:
    method = begun_plus()
    assert {"previous_weights", "teacher.gain"} <= method.state_dict().keys()
    assert method.previous_weights.shape == (3, method.tail.width)
    learn(method, next_stage({0: 3, 3: 3, 5: 9}, num_known=5, num_new=1))
    assert len(method.previous_weights) == 5
    assert not torch.equal(method.teacher.gain, method.tail.gain)


def test_lwf_holds_known_scores_where_simgcd_lets_them_go() -> None:
    moved = []
    for kind, extra in ((SimGCD, {}), (SimGCDPlus, {"lwf_weight": 10.0})):
        method = make(kind, head_length=1.0, **extra)  # a high rate, so slow heads
        learn(method, base_stage(epochs=10))
        tokens = base_stage().tokens
        before = infer_all(method, tokens).scores
        learn(method, next_stage(epochs=10))
        after = infer_all(method, tokens).scores
        assert before is not None and after is not None
        moved.append((after[:, :3] - before).abs().mean().item())
    assert moved[1] < moved[0]


# -- as in the public code -----------------------------------------------------------------------


def test_heads_start_at_the_length_of_a_linear_layers_rows_and_turn_faster_for_it() -> None:
    usual = torch.nn.Linear(768, 50, bias=False).weight.norm(dim=1).mean().item()
    method, long = make(), make(head_length=1.0)
    turned = []
    for each in (method, long):
        each.begin_stage(base_stage(), seeded())
        expected = usual if each is method else 1.0
        lengths = each.classifier.weight.detach().norm(dim=1)
        np.testing.assert_allclose(lengths, expected, rtol=0.02)
        scores = each.infer(base_stage().tokens.clean(torch.arange(6))).scores
        assert scores is not None
        each.cross_entropy(scores, torch.arange(6) % 3).backward()
        before = F.normalize(each.classifier.weight.detach(), dim=1)
        stepped = F.normalize(each.classifier.weight - 1e-3 * each.classifier.weight.grad, dim=1)
        turned.append((stepped.detach() - before).norm().item())
    assert turned[0] == pytest.approx(3 * turned[1], rel=0.02)
    method = make()
    learn(method, base_stage())
    method.begin_stage(next_stage(), seeded())
    np.testing.assert_allclose(
        method.classifier.weight.detach()[3:].norm(dim=1), 3**-0.5, rtol=1e-6
    )


def test_every_stage_has_a_new_projector_and_keeps_known_heads() -> None:
    method = make()
    learn(method, base_stage())
    projector = [weight.detach().clone() for weight in method.projector.parameters()]
    heads, clean = method.classifier.weight.detach().clone(), base_stage().tokens
    before = infer_all(method, clean).scores
    method.begin_stage(next_stage(), seeded())
    for old, new in zip(projector, method.projector.parameters(), strict=True):
        assert not torch.equal(old, new)
    assert torch.equal(method.classifier.weight[:3], heads)
    after = infer_all(method, clean).scores
    assert before is not None and after is not None
    torch.testing.assert_close(after[:, :3], before)
