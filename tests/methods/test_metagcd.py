"""MetaGCD: neighbours in place of labels, and episodes that move the weights just so."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from goal.common.errors import GoalError
from goal.losses.contrastive import info_nce
from goal.losses.neighbours import soft_sup_con
from goal.methods.base import Batch, LabelledBatch, restore
from goal.methods.metagcd import MetaGCD, MetaGCDSettings, Session, draw, play_episode
from goal.testing.planted import CLASSES, SMALL, base_stage, next_stage, small_tail, tail_of
from goal.testing.teaching import assert_same_state, learn

FAST = {"episodes": 2, "inner_steps": 2, "episode_batch": 8, "inner_lr": 0.05, "outer_lr": 0.05}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(seed: int = 0, **overrides: Any) -> MetaGCD:
    parsed = MetaGCDSettings.parse({"name": "metagcd", **SMALL, **FAST, **overrides})
    return MetaGCD.build(parsed, small_tail(), CLASSES, seeded(seed)).eval()


def weights_of(method: MetaGCD) -> dict[str, Tensor]:
    return {k: p.detach().clone() for k, p in method.named_parameters() if p.requires_grad}


def test_labels_at_stage_0_and_neighbours_afterwards() -> None:
    method, stage, positions = make(neighbour_threshold=0.5), base_stage(), torch.arange(9)
    pair = stage.tokens.pair(positions, seeded())
    terms = method.losses(LabelledBatch(*pair, positions, stage.labels[positions]), seeded())
    assert terms.keys() == {"contrast", "sup_contrast"}
    first, second = (method.infer(view).embeddings for view in pair)
    assert first is not None and second is not None
    half = 0.5 * info_nce(first, second, 1.0).item()
    assert terms["contrast"].item() == pytest.approx(half, rel=1e-5)
    terms = method.losses(Batch(*pair, positions), seeded())
    assert terms.keys() == {"contrast", "neighbours"}
    assert terms["contrast"].item() == pytest.approx(half, rel=1e-5)
    soft = 0.5 * soft_sup_con(first, second, 0.5, 0.07).item()
    assert soft > 0 and terms["neighbours"].item() == pytest.approx(soft, rel=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 9), st.integers(1, 5), st.integers(0, 99))
def test_an_episode_deals_classes_out_once_and_hides_half_of_them(
    classes: int, sessions: int, seed: int
) -> None:
    labels = torch.arange(classes).repeat(3)
    played = list(play_episode(labels, sessions, seeded(seed)))
    assert len(played) == min(sessions, classes // 2)
    known = set(labels[played[0].known].tolist()) if played else set()
    assert not played or len(known) == classes - classes // 2
    for session in played:
        arriving = labels[session.new].tolist()
        assert set(labels[session.known].tolist()) == known
        assert arriving and not known & set(arriving)
        assert len(session.known) == 3 * len(known)  # every image of every class
        assert len(arriving) == 3 * len(set(arriving))
        known |= set(arriving)
    assert not played or known == set(range(classes))


def test_drawing_takes_nothing_twice_and_no_more_than_there_is() -> None:
    pool = torch.tensor([4, 8, 15, 16, 23, 42])
    for count in (1, 4, 6, 99):
        drawn = draw(pool, count, seeded()).tolist()
        assert len(drawn) == len(set(drawn)) == min(count, 6)
        assert set(drawn) <= set(pool.tolist())


def recording(method: MetaGCD, stage: Any, session: Session) -> list[Batch]:
    """Run one meta-step and return the batches it asked losses for."""
    seen: list[Batch] = []
    objective = method.losses

    def listen(batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        seen.append(batch)
        return objective(batch, rng)

    method.losses = listen  # type: ignore[method-assign]
    method._meta_step(stage, session, seeded(3))
    del method.losses
    return seen


def test_a_meta_step_applies_the_adapted_gradient_to_the_weights_before_the_inner_loop() -> None:
    method, twin, stage = make(), make(), base_stage()
    session = next(iter(play_episode(stage.labels, 2, seeded(1))))
    theta = weights_of(method)
    *inner, outer = recording(method, stage, session)

    def gradient(at: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        leaves = {key: value.clone().requires_grad_() for key, value in at.items()}

        class Objective(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.method = twin

            def forward(self) -> Tensor:
                return torch.stack(list(self.method.losses(batch, seeded()).values())).sum()

        named = {f"method.{key}": value for key, value in leaves.items()}
        total = functional_call(Objective(), named, ())
        return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))

    adapted = theta
    assert len(inner) == 2
    for batch in inner:
        assert not isinstance(batch, LabelledBatch)
        step = gradient(adapted, batch)
        adapted = {key: value - 0.05 * step[key] for key, value in adapted.items()}
    assert isinstance(outer, LabelledBatch)
    step = gradient(adapted, outer)
    for key, value in weights_of(method).items():
        torch.testing.assert_close(value, theta[key] - 0.05 * step[key], rtol=1e-4, atol=1e-6)
    # First-order, yet not blind to the inner loop: the gradient at theta is another one.
    assert any(not torch.allclose(step[k], g) for k, g in gradient(theta, outer).items())


def test_batches_of_a_meta_step_hold_half_new_images_and_true_labels() -> None:
    method, stage = make(), base_stage()
    session = next(iter(play_episode(stage.labels, 2, seeded(1))))
    *inner, outer = recording(method, stage, session)
    for batch in inner:
        assert len(batch) == 8
        assert torch.isin(batch.positions, session.new).sum() == 4
        assert torch.isin(batch.positions, session.known).sum() == 4
    assert isinstance(outer, LabelledBatch) and len(outer) == 8
    assert torch.equal(outer.labels, stage.labels[outer.positions])


def nothing() -> None:
    """Run no epochs."""


def test_episodes_change_the_weights_of_stage_0_and_of_no_other() -> None:
    method = make()
    for stage, changes in ((base_stage(), True), (next_stage(), False)):
        method.begin_stage(stage, seeded())
        before = weights_of(method)
        frozen = tail_of(method).final_norm.state_dict()
        method.fit_stage(stage, nothing)
        after = weights_of(method)
        assert all(torch.equal(before[key], after[key]) != changes for key in before)
        assert all(
            torch.equal(v, frozen[k]) for k, v in tail_of(method).final_norm.state_dict().items()
        )
        assert all(parameter.grad is None for parameter in method.parameters())


def test_no_episodes_no_change() -> None:
    method = make(episodes=0)
    method.begin_stage(base_stage(), seeded())
    before = weights_of(method)
    method.fit_stage(base_stage(), nothing)
    assert all(torch.equal(value, before[key]) for key, value in weights_of(method).items())


def test_episodes_follow_from_the_state_alone() -> None:
    def run(method: MetaGCD, run_epochs: Callable[[], None]) -> MetaGCD:
        method.fit_stage(base_stage(), run_epochs)
        return method

    method = make()
    method.begin_stage(base_stage(), seeded())
    saved = {key: value.clone() for key, value in method.state_dict().items()}
    torch.manual_seed(1)
    first = run(method, nothing)
    resumed = make(seed=9)
    restore(resumed, saved)  # as after an interruption among the episodes
    torch.manual_seed(2)
    assert_same_state(first, run(resumed, nothing))
    other = make()
    other.begin_stage(base_stage(), seeded(5))  # another seed of the stage, other episodes
    run(other, nothing)
    ours, theirs = weights_of(first), weights_of(other)
    assert any(not torch.equal(ours[key], theirs[key]) for key in ours)


def test_episodes_come_after_the_epochs() -> None:
    method = make(episodes=1)
    method.begin_stage(base_stage(), seeded())
    before = weights_of(method)
    seen: list[bool] = []

    def epochs() -> None:
        seen.append(all(torch.equal(v, before[k]) for k, v in weights_of(method).items()))

    method.fit_stage(base_stage(), epochs)
    assert seen == [True]


def test_outer_steps_lower_the_labelled_loss() -> None:
    method, stage = make(episodes=20, outer_lr=0.02, inner_lr=0.001), base_stage()
    positions = torch.arange(len(stage.tokens))
    pair = stage.tokens.pair(positions, seeded())
    batch = LabelledBatch(*pair, positions, stage.labels)
    method.begin_stage(stage, seeded())
    before = sum(term.item() for term in method.losses(batch, seeded()).values())
    method.fit_stage(stage, nothing)
    assert sum(term.item() for term in method.losses(batch, seeded()).values()) < before


def test_a_loss_that_is_not_finite_stops_the_run_and_says_what_to_do() -> None:
    method = make()
    method.begin_stage(base_stage(), seeded())
    with torch.no_grad():
        tail_of(method).gain.fill_(torch.nan)
    with pytest.raises(GoalError, match=r"episode is not finite: contrast = nan.*method\.inner_lr"):
        method.fit_stage(base_stage(), nothing)


def test_a_whole_run_ends_with_all_classes() -> None:
    method = make()
    learn(method, base_stage())
    learn(method, next_stage())
    assert method.num_classes == 5
