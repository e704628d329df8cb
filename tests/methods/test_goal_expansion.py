"""GOAL when its vertices run out: a clear error, or a larger simplex."""

import pytest
import torch

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.learning.trainer import StageTrainer
from goal.methods.base import Method, infer_all, restore
from goal.methods.goal import Goal
from goal.settings.training import TrainingSettings
from goal.testing.planted import base_stage, next_stage, small_method


def learn(method: Method, stage: object) -> None:
    rng = torch.Generator().manual_seed(3)
    method.begin_stage(stage, rng)  # type: ignore[arg-type]
    settings = TrainingSettings(batch_size=12, base_lr=0.05, stage_lr=0.05)
    trainer = StageTrainer(method, stage, settings, rng)  # type: ignore[arg-type]
    trainer.run(lambda _: None, Reporter())
    method.end_stage(stage, rng)  # type: ignore[arg-type]


def test_running_out_of_vertices_is_an_early_error_that_says_what_to_do() -> None:
    method = small_method("goal", num_vertices=4, warmup_epochs=0)
    learn(method, base_stage())
    before = method.state_dict()["classifier.weight"].clone()
    with pytest.raises(GoalError, match=r"expand_vertices"):
        learn(method, next_stage())
    assert torch.equal(method.state_dict()["classifier.weight"], before)


def test_the_simplex_grows_when_it_must_and_not_before() -> None:
    method = small_method("goal", num_vertices=3, expand_vertices=True, warmup_epochs=0)
    assert isinstance(method, Goal)
    learn(method, base_stage())
    assert len(method.ledger.owners) == 3
    stage = next_stage()
    learn(method, stage)
    assert len(method.ledger.owners) == 6
    outputs = infer_all(method, stage.tokens)
    assert outputs.scores is not None and outputs.scores.shape == (len(stage.tokens), 5)
    gram = method.directions() @ method.directions().T
    expected = torch.full((5, 5), -1 / 5).fill_diagonal_(1.0)
    torch.testing.assert_close(gram, expected, atol=1e-5, rtol=0)
    twin = small_method("goal", num_vertices=3, expand_vertices=True)
    restore(twin, method.state_dict())
    assert torch.equal(infer_all(twin, stage.tokens).scores, outputs.scores)  # type: ignore[arg-type]


def test_the_embedding_limits_the_growth() -> None:
    method = small_method("goal", num_vertices=7, expand_vertices=True)  # embeddings have 8
    method.begin_stage(base_stage(), torch.Generator().manual_seed(0))
    with pytest.raises(GoalError, match="at most 8"):
        method.begin_stage(next_stage(num_new=6), torch.Generator().manual_seed(0))
