"""Settings of GOAL+, which its forms share."""

from typing import Literal

from pydantic import Field

from goal.methods.parts.aligned_base import AlignedBaseSettings
from goal.methods.parts.feature_memory import FeatureMemorySettings


class GoalPlusSettings(FeatureMemorySettings, AlignedBaseSettings):
    """Settings of GOAL+: the memory's, and for the trained form those of GOAL's stage 0.

    Attributes:
        alignment: What decides beside the pretrained feature.
        asking: Order in which a person is asked about images, where one may be asked: telling ones
            first (`asking`), or random, to compare with.
        ridge: Weight of the penalty of analytic alignment, over the mean variance [gamma].
    """

    alignment: Literal["none", "analytic", "trained"] = "none"
    asking: Literal["telling", "random"] = "telling"
    ridge: float = Field(default=1.0, gt=0)

    @property
    def frozen(self) -> bool:
        """Whether the frozen feature is all it needs."""
        return self.alignment != "trained"
