"""What GOAL+ is measured against besides methods: its bound, and where it began.

The bound is an oracle: its memory, given the true classes of the new images. What discovery loses
is the distance between the two; what the memory itself loses is the rest. Where it began is a
simpler memory and discovery, with a bound of its own. None of them is a method of the zoo.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.common.progress import Reporter
from goal.methods.base import LabelledStage, Method, Outputs, Stage, infer_all
from goal.methods.goal_plus import GoalPlus
from goal.methods.goal_plus_trained import TrainedGoalPlus
from goal.methods.registry import METHODS, MethodSpec
from goal.protocol.stages import StageIds
from goal.runs.grid import Cell
from goal.runs.run import Run


@dataclass(frozen=True)
class OracleStage(Stage):
    """An unlabelled stage with its true classes."""

    truth: Tensor


class Oracle(GoalPlus):
    """GOAL+ with an oracle: it is given the true class of every new image."""

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Remember the stage's classes by their true images."""
        if isinstance(stage, LabelledStage):
            super().end_stage(stage, rng)
            return
        features = infer_all(self, stage.tokens).features
        self.memory.learn(self._all(features), _truth(stage))


class First(TrainedGoalPlus):
    """One space of the aligned feature to look and decide in: where GOAL+ began.

    With the settings of `FIRST` it splits the distance to the nearest known mean in two, clusters
    the far part, refines by EM, and decides by the nearest mean.
    """

    def _pair(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        _, aligned = super()._pair(outputs)
        return aligned, aligned


class FirstOracle(First):
    """The same memory with an oracle."""

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Remember the stage's classes by their true images."""
        if isinstance(stage, LabelledStage):
            super().end_stage(stage, rng)
            return
        outputs, shares = infer_all(self, stage.tokens), _truth(stage)
        self.memory.learn(self._pair(outputs), shares)
        assert outputs.embeddings is not None
        self.claim_new(outputs.embeddings, shares.argmax(dim=1), stage)


def _truth(stage: Stage) -> Tensor:
    """Which new class each image belongs to, one-hot, (N, M)."""
    assert isinstance(stage, OracleStage)
    return F.one_hot(stage.truth, stage.num_seen)[:, stage.num_known :].double()


CERTAIN = "method.caution=0"  # an oracle does not guess
FIRST = (
    "method.discovery_dimensions=256",
    "method.pretrained_dimensions=256",
    "method.aligned_dimensions=256",
    "method.shape=0",
    "method.parts=2",
    "method.alignment=trained",
    CERTAIN,
)
REFERENCES: dict[str, tuple[type[Method], str]] = {
    "goal-plus-oracle": (Oracle, "GOAL+ with an oracle (true new classes): a bound, not a method"),
    "goal-plus-first": (First, "Where GOAL+ began"),
    "goal-plus-first-oracle": (FirstOracle, "Where GOAL+ began, with an oracle: a bound"),
}


class OracleRun(Run):
    """A run that hands the true classes to an oracle."""

    def _stage(self, ids: StageIds, unfinished: dict[str, Any] | None = None) -> Stage:
        stage = super()._stage(ids, unfinished)
        if isinstance(stage, LabelledStage) or not isinstance(
            self.learner.method, Oracle | FirstOracle
        ):
            return stage
        truth = torch.from_numpy(self.train_targets[ids.train_ids])
        return OracleStage(**vars(stage), truth=truth)


def register() -> None:
    """Make them methods for this process."""
    for name, (method, summary) in REFERENCES.items():
        METHODS[name] = MethodSpec(method, summary)


def run_reference(cell: Cell, reporter: Reporter) -> None:
    """Run the experiment of one of them, unless it is finished."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(cell.settings.threads or torch.get_num_threads())
    OracleRun(cell.settings, cell.folder, reporter, torch.device("cpu")).execute()
