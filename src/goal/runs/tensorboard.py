"""Live curves while a run goes on, for TensorBoard."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goal.common.errors import GoalError
from goal.common.progress import Reporter


class TensorboardReporter(Reporter):
    """Writes loss terms per epoch and results per stage.

    Nothing is written before the first epoch or stage ends, so that a run that cannot start leaves
    no files.
    """

    def __init__(self, folder: Path) -> None:
        """Check that TensorBoard is there.

        Args:
            folder: Where event files go.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise GoalError(
                "--log tensorboard needs TensorBoard: pip install 'goal-cgcd[tensorboard]'."
            ) from None
        self._make: Callable[..., Any] = SummaryWriter
        self._folder = folder
        self._opened: Any = None
        self._stages = 0

    def epoch_done(self, record: Mapping[str, Any], step: int) -> None:
        """Write ``loss/<term>`` and their sum, over epochs of all stages."""
        terms = {key: value for key, value in record.items() if key not in ("stage", "epoch")}
        for name, value in (terms | {"total": sum(terms.values())}).items():
            self._writer().add_scalar(f"loss/{name}", value, step)

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write ``stage/<key>`` for every number of the stages not yet written."""
        for record in records[self._stages :]:
            for key, value in record.items():
                if key != "stage" and isinstance(value, (int, float)):
                    self._writer().add_scalar(f"stage/{key}", value, record["stage"])
        self._stages = len(records)

    def close(self) -> None:
        """Write what is left."""
        if self._opened is not None:
            self._opened.close()

    def _writer(self) -> Any:
        if self._opened is None:
            self._opened = self._make(str(self._folder), flush_secs=5)
        return self._opened
