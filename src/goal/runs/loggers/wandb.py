"""Live curves for Weights & Biases, kept on disk until `wandb sync` is asked for."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goal.runs.loggers.base import Axis, CurveLogger


class WandbLogger(CurveLogger):
    """Writes an offline run; ``WANDB_MODE=online`` is how a person asks for more."""

    tool = "wandb"

    def __init__(self, run: Path) -> None:
        """Check that wandb is there."""
        super().__init__(run)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when it is imported
        self._module = self._require("wandb")
        self._opened: Any = None

    @property
    def how_to_look(self) -> str:
        """The command that sends the curves to where they are shown."""
        return f"wandb sync {shlex.quote(str(self._folder))}/wandb/offline-run-*"

    def write(self, values: Mapping[str, float], axis: Axis, step: int) -> None:
        """Write one curve for each, over its own axis."""
        if self._opened is None:
            self._opened = self._open()
        self._opened.log({**values, axis: step})

    def close(self) -> None:
        """Write what is left."""
        if self._opened is not None:
            self._opened.finish()

    def _open(self) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._module.Settings(
            console="off", disable_git=True, save_code=False, silent=True
        )
        opened = self._module.init(
            project="goal",
            name=self._folder.parent.name,
            id=self._identity,
            resume="allow",
            dir=str(self._folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=settings,
        )
        opened.define_metric("loss/*", step_metric="epoch")
        opened.define_metric("stage/*", step_metric="stage")
        return opened
