"""The bound of GOAL+: its memory, told the true classes of the new images. Not a method.

What discovery loses is the distance between the two; what the memory itself loses is the rest.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from goal.bench import Cell
from goal.methods import METHODS, MethodSpec
from goal.methods.base import LabelledStage, Stage, infer_all
from goal.methods.goal_plus import GoalPlus
from goal.progress import Reporter
from goal.protocol import Stage as StageIds
from goal.run import Run

NAME = "goal-plus-told"


@dataclass(frozen=True)
class ToldStage(Stage):
    """An unlabelled stage with its answers."""

    truth: Tensor


class Told(GoalPlus):
    """GOAL+ that is told which image shows which new class."""

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Remember the stage's classes by their true images."""
        if isinstance(stage, LabelledStage):
            super().end_stage(stage, rng)
            return
        assert isinstance(stage, ToldStage)
        outputs = infer_all(self, stage.tokens)
        shares = F.one_hot(stage.truth, stage.num_seen)[:, stage.num_known :].double()
        self.learn_classes(outputs, shares)
        assert outputs.embeddings is not None
        self.claim_new(outputs.embeddings, shares.argmax(dim=1), stage)


class ToldRun(Run):
    """A run that gives its answers away."""

    def _stage(self, ids: StageIds) -> Stage:
        stage = super()._stage(ids)
        if isinstance(stage, LabelledStage):
            return stage
        truth = torch.from_numpy(self.train_targets[ids.train_ids])
        return ToldStage(**vars(stage), truth=truth)


def register() -> None:
    """Make the bound a method for this process."""
    METHODS[NAME] = MethodSpec(Told, "GOAL+ told the true classes: a bound, not a method")


def run_bound(cell: Cell, reporter: Reporter) -> None:
    """Run the bound's experiment, unless it is finished."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(cell.settings.threads or torch.get_num_threads())
    ToldRun(cell.settings, cell.folder, reporter, torch.device("cpu")).execute()
