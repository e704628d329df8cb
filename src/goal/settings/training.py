"""Settings of the training loop."""

from typing import Literal

from pydantic import Field

from goal.common.section import Section


class TrainingSettings(Section):
    """The loop: SGD with momentum, cosine to a thousandth of the rate, a fresh start each stage.

    `selection` is which epoch's model goes on: the last one, or (only to repeat what others
    published) the one that is best on the test set. `share_base` lets runs that train the same
    base model at stage 0 train it once; it changes no result. `precision` is that of the
    matrix products in tail and projector; weights and losses stay float32. `prefetch` reads the
    next batch's tokens on a thread during the backward pass: for GPUs and slow disks; it changes
    no result.
    """

    base_epochs: int = Field(default=100, ge=0)
    stage_epochs: int = Field(default=30, ge=0)
    base_lr: float = Field(default=0.1, gt=0)
    stage_lr: float = Field(default=0.01, gt=0)
    batch_size: int = Field(default=128, ge=2)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-5, ge=0)
    selection: Literal["last", "best_on_test"] = "last"
    precision: Literal["float32", "bfloat16"] = "float32"
    prefetch: bool = False
    share_base: bool = True
    checkpoint_seconds: float = Field(default=60.0, ge=0)
