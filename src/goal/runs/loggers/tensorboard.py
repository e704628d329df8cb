"""Live curves for TensorBoard."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goal.runs.loggers.base import Axis, CurveLogger


class TensorboardLogger(CurveLogger):
    """Writes event files."""

    tool = "tensorboard"

    def __init__(self, run: Path) -> None:
        """Check that TensorBoard is there."""
        super().__init__(run)
        self._module = self._require("torch.utils.tensorboard")
        self._opened: Any = None

    @property
    def how_to_look(self) -> str:
        """The command that shows the curves."""
        return shlex.join(["tensorboard", "--logdir", str(self._folder)])

    def write(self, values: Mapping[str, float], axis: Axis, step: int) -> None:
        """Write one curve for each."""
        if self._opened is None:
            self._opened = self._module.SummaryWriter(str(self._folder), flush_secs=5)
        for name, value in values.items():
            self._opened.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._opened is not None:
            self._opened.close()
