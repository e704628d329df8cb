"""Run folders, read back for tables and pages."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goal.errors import GoalError
from goal.files import read_jsonl


@dataclass(frozen=True)
class RunRecord:
    """What a finished run left in its folder."""

    folder: Path
    settings: str
    summary: dict[str, Any]
    records: list[dict[str, Any]]
    history: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """Method and seed."""
        return f"{self.summary['method']}, seed {self.summary['seed']}"


def load_run(folder: Path) -> RunRecord:
    """Read a finished run, or say what is missing."""
    try:
        return RunRecord(
            folder=folder,
            settings=(folder / "settings.yaml").read_text(),
            summary=json.loads((folder / "summary.json").read_text()),
            records=read_jsonl(folder / "results.jsonl"),
            history=read_jsonl(folder / "history.jsonl"),
        )
    except FileNotFoundError as error:
        raise GoalError(
            f"{folder} holds no finished run: {error.filename} is missing. "
            f"`goal resume {folder}` finishes one that was interrupted."
        ) from None
    except ValueError as error:
        raise GoalError(f"A results file in {folder} is damaged: {error}") from None
