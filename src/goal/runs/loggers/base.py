"""What loggers of live curves have in common."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from goal.common.errors import GoalError
from goal.common.progress import Reporter

Axis = Literal["epoch", "stage"]


class CurveLogger(Reporter):
    """Writes loss terms per epoch and results per stage.

    Nothing is written before the first epoch or stage ends, so that a run that cannot start leaves
    no files.
    """

    tool: str  # its name, also that of its package, its extra and its folder

    def __init__(self, run: Path) -> None:
        """Check that the tool is there.

        Args:
            run: The run folder; the tool's files go into a folder of its name in it.
        """
        self._folder = run / self.tool
        self._stages = 0

    @property
    @abstractmethod
    def how_to_look(self) -> str:
        """The command that shows the curves."""

    @abstractmethod
    def write(self, values: Mapping[str, float], axis: Axis, step: int) -> None:
        """Write numbers at a place on an axis."""

    def epoch_done(self, record: Mapping[str, Any], step: int) -> None:
        """Write ``loss/<term>`` and their sum, over epochs of all stages."""
        terms = {key: value for key, value in record.items() if key not in ("stage", "epoch")}
        values = terms | {"total": sum(terms.values())}
        self.write({f"loss/{name}": value for name, value in values.items()}, "epoch", step)

    def stage_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write ``stage/<key>`` for every number of the stages not yet written."""
        for record in records[self._stages :]:
            numbers = {
                f"stage/{key}": value
                for key, value in record.items()
                if key != "stage" and isinstance(value, (int, float))
            }
            self.write(numbers, "stage", record["stage"])
        self._stages = len(records)

    @property
    def _identity(self) -> str:
        """The same for the same folder, so that a resumed run goes on with its curves."""
        return hashlib.sha256(str(self._folder.resolve()).encode(errors="replace")).hexdigest()[:16]

    def _require(self, module: str) -> Any:
        """Import what the tool needs, or say how to install it."""
        try:
            return import_module(module)
        except ImportError as error:
            raise GoalError(
                f"--log {self.tool} needs a package: pip install 'goal-cgcd[{self.tool}]'. "
                f"({error})"
            ) from error
