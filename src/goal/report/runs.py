"""Run folders, read back for tables and pages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from goal.common.errors import GoalError
from goal.storage import manifest
from goal.storage.files import read_json, read_jsonl, read_text, require_format


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


class _Table(BaseModel):
    """What pages and tables rely on; other keys may come and go with versions."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Summary(_Table):
    format: int = manifest.FORMAT
    dataset: str
    method: str
    backbone: str
    seed: int
    selection: str
    stage0_all: float
    average: dict[str, float | None]
    final: dict[str, float | None]
    forgetting: dict[str, float | None]
    discovery: dict[str, float | None]
    wall_seconds: float
    peak_memory_mb: float | None = None
    versions: dict[str, str]


class _Record(_Table):
    stage: int
    all: float
    num_test: int
    base: float | None = None
    novel: float | None = None
    seen: float | None = None
    unseen: float | None = None


def load_run(folder: Path) -> RunRecord:
    """Read a finished run, or say what is missing."""
    for name in ("settings.yaml", "summary.json", "results.jsonl", "history.jsonl"):
        if not (folder / name).is_file():
            raise GoalError(
                f"{folder} holds no finished run: {folder / name} is missing. "
                f"`goal resume {folder}` finishes one that was interrupted."
            )
    summary = read_json(folder / "summary.json")
    require_format(summary.get("format", manifest.FORMAT), manifest.FORMAT, folder)
    records = read_jsonl(folder / "results.jsonl")
    try:
        _Summary.model_validate(summary)
        for index, record in enumerate(records):
            if _Record.model_validate(record).stage != index:
                raise ValueError(f"line {index + 1} of results.jsonl should be stage {index}")
        if not records:
            raise ValueError("results.jsonl is empty")
        settings = read_text(folder / "settings.yaml")
    except ValueError as error:
        raise GoalError(f"A results file in {folder} is damaged: {error}") from None
    return RunRecord(folder, settings, summary, records, read_jsonl(folder / "history.jsonl"))
