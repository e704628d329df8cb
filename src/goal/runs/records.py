"""The files a run keeps its figures in, read and checked: the one reader of them.

Files come from strangers, too. A key of the wrong type, a figure that is none (NaN, infinity) or
a stage out of order is an error that names file and line; keys of other versions may stand beside
ours as long as they are plain values.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.section import Section
from goal.storage import manifest
from goal.storage.files import read_json, read_jsonl, require_format

RESULTS, HISTORY, SUMMARY = "results.jsonl", "history.jsonl", "summary.json"

Figure = Annotated[float, Field(ge=-1e12, le=1e12)]
Count = Annotated[int, Field(ge=0, le=2**40)]
Plain = float | int | str | bool | None


class _Stored(Section):
    """A JSON object of ours; what other versions wrote beside is a plain value each."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain]


class StageLine(_Stored):
    """A line of ``results.jsonl``; docs/results.md explains the keys."""

    stage: Count
    all: Figure
    base: Figure
    novel: Figure | None
    seen: Figure
    unseen: Figure | None
    base_identity: Figure
    nmi: Figure
    ari: Figure
    num_test: Count
    num_train: Count = 0
    num_known: Count = 0
    num_new: Count = 0
    num_found: Count | None = None
    num_asked: Count | None = None
    nc1: Figure | None = None
    nc2: Figure | None = None
    nc3: Figure | None = None
    nc3_vertices: Figure | None = None
    nc4: Figure | None = None
    vertex_alignment: Figure | None = None
    confident_size: Count | None = None
    confident_novel: Figure | None = None
    confident_purity: Figure | None = None
    selection: str = "last"


class EpochLine(_Stored):
    """A line of ``history.jsonl``: every other key is the mean of a loss term."""

    __pydantic_extra__: dict[str, float | None]  # type: ignore[assignment]
    stage: Count
    epoch: Count


class _Measures(_Stored):
    all: Figure | None
    base: Figure | None
    novel: Figure | None
    seen: Figure | None
    unseen: Figure | None


class _Forms(_Stored):
    gm: Figure | None
    happy: Figure | None
    vb_cgcd: Figure | None
    goal_own: Figure | None
    goal_rivals: Figure | None


class Summary(_Stored):
    """What ``summary.json`` holds; docs/results.md explains the keys."""

    __pydantic_extra__: dict[str, Any]
    format: int = manifest.FORMAT
    dataset: str
    method: str
    backbone: str
    seed: Count
    selection: str
    stage0_all: Figure
    average: _Measures
    final: _Measures
    forgetting: _Forms
    discovery: _Forms
    wall_seconds: Annotated[float, Field(ge=0, le=1e12)]
    stage_seconds: list[Figure] = Field(default_factory=list)
    peak_memory_mb: float | None = None
    versions: dict[str, str]


def checked(
    rows: Sequence[Mapping[str, Any]], kind: type[_Stored], where: str
) -> list[dict[str, Any]]:
    """Return the rows as they are, or raise an error that names the first bad one.

    Args:
        rows: Plain values, one mapping per line.
        kind: `StageLine`, whose stages go 0, 1, ..., or `EpochLine`.
        where: The file they come from.
    """
    for number, row in enumerate(rows, 1):
        found = kind.parse(row, f"record: {where} is damaged in line {number}")
        if isinstance(found, StageLine) and found.stage != number - 1:
            raise GoalError(
                f"{where} is damaged in line {number}: it should be of stage {number - 1}, but is "
                f"of stage {found.stage}."
            )
    return [dict(row) for row in rows]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Read the records of a run's stages, in order."""
    path = folder / RESULTS
    return checked(read_jsonl(path), StageLine, file_name(path))


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Read the loss terms of a run's epochs."""
    path = folder / HISTORY
    return checked(read_jsonl(path), EpochLine, file_name(path))


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a finished run."""
    path = folder / SUMMARY
    content = read_json(path)
    require_format(content.get("format", manifest.FORMAT), manifest.FORMAT, folder)
    Summary.parse(content, f"summary: {file_name(path)} is damaged")
    return content


def verify_all(folder: Path, found: manifest.Findings) -> None:
    """Check that the records of every run in or below `folder` are of their types."""
    readers = {RESULTS: read_results, HISTORY: read_history, SUMMARY: read_summary}
    for settings in sorted(folder.rglob("settings.yaml")):
        for name, read in readers.items():
            path = settings.parent / name
            if not path.is_file() or any(str(path) in problem for problem in found.problems):
                continue
            try:
                read(settings.parent)
            except GoalError as error:
                found.problems.append(str(error))
