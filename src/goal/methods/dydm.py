"""DYDM: Happy's losses discover, a memory that cannot forget predicts (CVPR 2026).

    stage 0:     L as Happy's
    stage t:     L = Happy's discovery (SelfDist - H in groups + InfoNCE)
                     + tau^2 KL(memory || discovery)   over the known classes
    memory:      Q = argmin |relu(f_0 P) Q - Y|^2 + gamma |Q|^2
                 over the labelled samples and all samples ever predicted new, with those labels
    predict:     argmax relu(f_0 P) Q,    f_0 the feature of the tail as stage 0 left it

The discovery branch has neither replay nor distillation of features: the memory teaches it what is
known. At the end of each stage it names the samples of new classes once, and the memory takes them
in by recursive least squares (`ridge_memory`).

Deviation: points the source leaves open.
    - Both branches' logits are their scores over the student's temperature, as for SimGCD+: a
      ridge score is about 1 for its class and 0 for others, as a cosine is, and bare scores,
      softened by tau = 2, would be all but uniform. The memory sees each view by itself.
    - Samples predicted new by the discovery branch are taken in with weight 1, whatever their
      confidence; samples predicted known are left out, for their classes are in memory already.
    - f_0 has unit length, P is standard normal, and there is no bias.
    - A new class that nobody is predicted to be scores zero until it is found, which never happens
      in the same stage again.
    - While stage 0 trains there is no memory, and Happy's classifier answers.
"""

import copy

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens, TokenSource
from goal.distributed import Split
from goal.losses.distillation import logit_distillation
from goal.methods.base import Batch, LabelledStage, Outputs, Stage
from goal.methods.happy import Discovering, DiscoverySettings
from goal.methods.parts.parametric import Views
from goal.methods.parts.ridge_memory import RidgeMemory


class DYDMSettings(DiscoverySettings):
    """Settings of DYDM.

    Attributes:
        memory_width: Width of the random projection.
        gamma: Weight of the ridge.
        memory_weight: Weight of the memory's teaching.
        memory_temperature: Its temperature [tau].
    """

    memory_width: int = Field(default=3000, gt=0)
    gamma: float = Field(default=0.1, gt=0)
    memory_weight: float = Field(default=1.0, ge=0)
    memory_temperature: float = Field(default=2.0, gt=0)


class DYDM(Discovering):
    """Happy's discovery, with a second opinion that has the last word."""

    Settings = DYDMSettings
    settings: DYDMSettings

    def __init__(self, settings: DYDMSettings, tail: Tail, rng: torch.Generator) -> None:
        super().__init__(settings, tail, rng)
        self.anchor = copy.deepcopy(tail).requires_grad_(False)
        self.memory = RidgeMemory(tail.width, settings.memory_width, settings.gamma, rng)

    def renew_teacher(self, stage: Stage) -> None:
        """The tail as stage 0 left it teaches every later stage."""
        self.teacher.load_state_dict(self.anchor.state_dict())

    def asks_teacher(self) -> bool:
        """The memory sees its features."""
        return self.settings.memory_weight > 0

    def kept(self, batch: Batch, views: Views, rng: torch.Generator) -> dict[str, Tensor]:
        """The memory's opinion of known classes."""
        s, known = self.settings, len(self.prototypes)
        if s.memory_weight == 0:
            return {}
        remembered = self.memory(self.previous_features(batch))
        taught = logit_distillation(
            views.scores[:, :known] / s.student_temperature,
            remembered / s.student_temperature,
            s.memory_temperature,
        )
        return {"memory": s.memory_weight * taught}

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Measure prototypes, and take the stage's classes into memory.

        The tail that stage 0 trained is kept for ever, before it moves on.
        """
        if isinstance(stage, LabelledStage):
            self.anchor.load_state_dict(self.tail.state_dict())
        outputs, stable = self._look(stage.tokens)
        self.remember(stage, outputs)
        if isinstance(stage, LabelledStage):
            classes = stage.labels.to(stable.device)
        else:
            assert outputs.scores is not None
            classes = outputs.scores.argmax(dim=1)
        mine = classes >= stage.num_known
        self.memory.learn(stable[mine], classes[mine], stage.num_seen)

    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features and embeddings of the discovery branch, and scores by the memory."""
        outputs = super().infer(tokens)
        if not self.memory.num_classes:
            return outputs
        return Outputs(outputs.features, self.memory(self._stable(tokens)), outputs.embeddings)

    def _stable(self, tokens: Tokens) -> Tensor:
        """Unit features of the stage-0 tail."""
        return F.normalize(self.anchor(tokens), dim=1)

    @torch.no_grad()
    def _look(self, tokens: TokenSource, batch_size: int = 512) -> tuple[Outputs, Tensor]:
        """What the discovery branch makes of all images, and their stable features."""
        outputs, stable = [], []
        split = Split(len(tokens))
        for part in split.mine.split(batch_size):
            clean = tokens.clean(part).to(self.radius.device)
            outputs.append(super().infer(clean))
            stable.append(self._stable(clean))
        return Outputs.cat(outputs).over(split.gather), split.gather(torch.cat(stable))
