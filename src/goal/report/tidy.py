"""The figures of runs as one tidy table: a row for each figure, a column for each number.

`COLUMNS` says what a row has. `stage` is empty for figures about a whole run (``average_all``,
``forgetting_gm``, ...), `convention` for those that both conventions share, `sd` for one seed and
for published figures, `n` for published ones.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from goal.report import published
from goal.report.compare import (
    CONVENTIONS,
    FORMS,
    Group,
    alignment,
    find_runs,
    group_runs,
    short_name,
)
from goal.report.runs import load_run
from goal.runs.damage import blaming_damage

COLUMNS = (
    *("table", "dataset", "stages", "method", "variant", "backbone", "source"),
    *("convention", "metric", "stage", "mean", "sd", "n"),
)
MEASURES = {
    "all": "",
    **{measure: name for name, pair in CONVENTIONS.items() for measure in pair},
}
Row = dict[str, Any]


def tidy_rows(folders: Sequence[Path]) -> list[Row]:
    """Every figure of the papers' tables that the runs have, and the published ones beside."""
    runs = find_runs(folders)
    with blaming_damage(run.folder for run in runs):
        groups = group_runs(runs)
        rows = [row for group in groups for row in _of_group(group)]
        for place in sorted({(group.dataset, group.stages) for group in groups}):
            mine = [group for group in groups if (group.dataset, group.stages) == place]
            if len({alignment(group) for group in mine if alignment(group)}) > 1:
                rows += [row for group in mine for row in _of_ablation(group)]
    return rows


def _numbers(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, sample deviation and number of what is there."""
    known = [value for value in values if value is not None]
    return {
        "mean": round(mean(known), 6) if known else None,
        "sd": round(stdev(known), 6) if len(known) > 1 else None,
        "n": len(known),
    }


def _row(group: Group, table: int, metric: str, **given: Any) -> Row:
    named = {
        "table": table,
        "dataset": group.dataset,
        "stages": group.stages,
        "method": group.method,
        "variant": group.variant,
        "backbone": short_name(group.backbone),
        "source": "run",
        "convention": MEASURES.get(metric.removeprefix("average_"), ""),
        "metric": metric,
    }
    return {key: (named | given).get(key) for key in COLUMNS}


def _paper(group: Group, table: int, metric: str, value: float | None, **given: Any) -> Row:
    about = {"source": "paper", "backbone": "DINO ViT-B/16", "mean": value, **given}
    return _row(group, table, metric, **about)


def _of_group(group: Group) -> Iterator[Row]:
    table = 3 if group.stages == 10 else 1
    for stage in range(group.stages + 1):
        for key in MEASURES:
            values = [run.records[stage][key] for run in group.runs]
            yield _row(group, table, key, stage=stage, **_numbers(values))
    for key in MEASURES:
        values = [run.summary["average"][key] for run in group.runs]
        yield _row(group, table, f"average_{key}", **_numbers(values))
    for kind in ("forgetting", "discovery"):
        for form in FORMS:
            values = [run.summary[kind][form] for run in group.runs]
            yield _row(group, 2, f"{kind}_{form}", **_numbers(values))
    if not group.variant:
        yield from _published(group, table)


def _published(group: Group, table: int) -> Iterator[Row]:
    """Published figures of the method, each where it was printed."""
    row = published.stage_row(group.dataset, group.method, group.stages)
    if row is not None:
        names = dict(zip(("all", "old", "new"), ("all", *CONVENTIONS[row.convention]), strict=True))
        if row.stage0_all is not None:
            yield _paper(group, table, "all", row.stage0_all, stage=0)
        for stage, figures in enumerate(row.stages, 1):
            for key, value in figures.items():
                yield _paper(group, table, names[key], value, stage=stage)
        for key, value in row.average.items():
            yield _paper(group, table, f"average_{names[key]}", value)
    printed = published.forgetting_discovery(group.dataset, group.method)
    if printed is not None and group.stages == 5:
        form = "goal_own" if group.method == "goal" else "goal_rivals"
        for kind, value in zip(("forgetting", "discovery"), printed, strict=True):
            yield _paper(group, 2, f"{kind}_{form}", value)


def _of_ablation(group: Group) -> Iterator[Row]:
    """Averages with each alignment on or off; `variant` names the two switches."""
    flags = alignment(group)
    if flags is None:
        return
    supervised, unsupervised = ("on" if flag else "off" for flag in flags)
    variant = {"variant": f"supervised {supervised}, unsupervised {unsupervised}"}
    names = {"all": "all", "base": "old", "novel": "new"}
    for key in names:
        values = [run.summary["average"][key] for run in group.runs]
        yield _row(group, 4, f"average_{key}", **variant, **_numbers(values))
    paper = published.ablation(group.dataset, *flags) if group.stages == 5 else None
    for key, printed in names.items() if paper is not None else ():
        yield _paper(group, 4, f"average_{key}", (paper or {}).get(printed), **variant)


def sweep_rows(key: str, folders: Sequence[tuple[str, Path]]) -> list[Row]:
    """Averages over stages >= 1 for each value of one setting, a row for each measure.

    Args:
        key: The setting.
        folders: Its values, as ``key=value`` or the value alone, with the folder of each run.
    """
    by_value: dict[str, list[Any]] = {}
    for value, folder in folders:
        by_value.setdefault(value.removeprefix(f"{key}="), []).append(load_run(folder))
    return [
        {
            "dataset": runs[0].summary["dataset"],
            "method": runs[0].summary["method"],
            "backbone": short_name(runs[0].summary["backbone"]),
            "setting": key,
            "value": value,
            "metric": f"average_{measure}",
            **_numbers([run.summary["average"][measure] for run in runs]),
        }
        for value, runs in by_value.items()
        for measure in MEASURES
    ]
