"""Run folders, read back for tables and pages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from goal.common.errors import GoalError
from goal.runs.records import HISTORY, RESULTS, SUMMARY, read_history, read_results, read_summary
from goal.storage.files import read_text
from goal.storage.yaml_files import parse_yaml


@dataclass(frozen=True)
class RunRecord:
    """What a finished run left in its folder; `settings` is the text of which `values` are read."""

    folder: Path
    settings: str
    values: dict[str, Any]
    summary: dict[str, Any]
    records: list[dict[str, Any]]
    history: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """Method and seed."""
        return f"{self.summary['method']}, seed {self.summary['seed']}"


def swept(run: RunRecord) -> tuple[str, str | None]:
    """The setting that a sweep gave this run, and its value; None outside of sweeps."""
    key, equals, value = unquote(run.folder.parent.name).partition("=")  # root/key=value/seed-n
    return key, value if equals else None


def axis_of(values: Iterable[str]) -> tuple[list[str], list[float]]:
    """Values of a setting in order, and where each stands: evenly, unless all are numbers."""
    texts = list(values)
    if all(re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?(e-?\d{1,2})?", text) for text in texts):
        ordered = sorted(texts, key=float)
        return ordered, [float(text) for text in ordered]
    return sorted(texts), [float(place) for place in range(len(texts))]


def load_run(folder: Path) -> RunRecord:
    """Read a finished run, or say what is missing."""
    for name in ("settings.yaml", SUMMARY, RESULTS, HISTORY):
        if not (folder / name).is_file():
            raise GoalError(
                f"{folder} holds no finished run: {folder / name} is missing. "
                f"`goal resume {folder}` finishes one that was interrupted."
            )
    summary, records = read_summary(folder), read_results(folder)
    if not records:
        raise GoalError(f"{folder / RESULTS} is damaged: it is empty.")
    if len(records) > 1 and summary["average"]["all"] is None:
        raise GoalError(f"{folder / SUMMARY} is damaged: it lacks the average of its stages.")
    path = folder / "settings.yaml"
    text = read_text(path)
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict) or not isinstance(values.get("method"), dict):
        raise GoalError(f"{path} is damaged: it holds no settings of a method.")
    return RunRecord(folder, text, values, summary, records, read_history(folder))
