"""The papers' tables out of run folders: means and deviations over seeds, published rows beside.

Table 1 is per-stage accuracy, Table 2 forgetting and discovery, Table 3 the ten-stage protocol,
Table 4 the alignment ablation. Old and new are given in both conventions, each under its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from goal.common.errors import GoalError
from goal.report import published
from goal.report.runs import RunRecord, load_run
from goal.runs.damage import blaming_damage
from goal.settings.plain import identity_of

CONVENTIONS = {"base/novel": ("base", "novel"), "seen/unseen": ("seen", "unseen")}
FORMS = ("gm", "happy", "vb_cgcd", "goal_own", "goal_rivals")
PAPER = "  paper"  # the first cell of a published row


@dataclass(frozen=True)
class TextTable:
    """A table of texts, ready for any format; `best` are the row and column of the best figures."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""
    best: frozenset[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        """Find the best figure of each column among our own rows, published ones apart."""
        ours = [index for index, row in enumerate(self.rows) if row[0] != PAPER]
        found: set[tuple[int, int]] = set()
        for column, heading in enumerate(self.headings[1:], 1):
            shown = {row: _mean_of(self.rows[row][column]) for row in ours}
            known = {row: value for row, value in shown.items() if value is not None}
            if len(known) > 1 and not heading.startswith(PAPER.strip()):
                best = (min if heading.startswith("M_f") else max)(known.values())
                found |= {(row, column) for row, value in known.items() if value == best}
        object.__setattr__(self, "best", frozenset(found))


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    dataset: str
    method: str
    backbone: str
    variant: str
    runs: list[RunRecord]

    @property
    def stages(self) -> int:
        """Stages after the labelled one."""
        return len(self.runs[0].records) - 1

    @property
    def setting(self) -> str:
        """Dataset and number of stages, in words."""
        return f"{self.dataset}, {self.stages} stage{'s' * (self.stages != 1)}"

    @property
    def label(self) -> str:
        """Name of the group in a row."""
        name = self.method + (f" ({self.variant})" if self.variant else "")
        return f"{name}, n={len(self.runs)}"


def find_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Read all finished runs in or below the folders."""
    places = sorted({path.parent for folder in folders for path in folder.rglob("summary.json")})
    if not places:
        raise GoalError(
            f"No finished run in {', '.join(str(folder) for folder in folders)}. "
            "`goal resume` finishes one that was interrupted."
        )
    return [load_run(place) for place in places]


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Group runs by their settings less the seed; name what sets same-named groups apart."""
    flat = _settings_of(runs)
    groups: dict[str, list[int]] = {}
    for index, settings in enumerate(flat):
        key = (len(runs[index].records), sorted(settings.items()))
        groups.setdefault(repr(key), []).append(index)
    result = []
    for members in groups.values():
        first = runs[members[0]].summary
        rivals = [
            flat[other[0]]
            for other in groups.values()
            if runs[other[0]].summary["method"] == first["method"]
            and runs[other[0]].summary["dataset"] == first["dataset"]
        ]
        mine = flat[members[0]]
        apart = [key for key in sorted(mine) if len({repr(rival.get(key)) for rival in rivals}) > 1]
        variant = ", ".join(f"{key.removeprefix('method.')}={mine[key]}" for key in apart)
        chosen = [runs[index] for index in members]
        result.append(Group(first["dataset"], first["method"], first["backbone"], variant, chosen))
    return sorted(result, key=lambda group: (group.dataset, group.stages, group.label))


def _settings_of(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Settings of each less the seed; keys that are younger than a run have their defaults."""
    found = [identity_of(run.values) for run in runs]
    keys: dict[str, set[frozenset[str]]] = {}
    for settings in found:
        keys.setdefault(str(settings.get("method.name")), set()).add(frozenset(settings))
    if any(len(different) > 1 for different in keys.values()):
        found = [_completed(run.values) for run in runs]
    for settings in found:
        settings.pop("seed", None)
    return found


def _completed(plain: dict[str, Any]) -> dict[str, Any]:
    from goal.settings.settings import compose  # torch: only where versions are mixed

    try:
        return compose(plain).identity()
    except GoalError:  # a run of another version, with keys of its own
        return identity_of(plain)


def paper_tables(folders: Sequence[Path]) -> list[TextTable]:
    """Build every table that the runs have figures for."""
    runs = find_runs(folders)
    with blaming_damage(run.folder for run in runs):
        return _paper_tables(group_runs(runs))


def _paper_tables(groups: Sequence[Group]) -> list[TextTable]:
    tables = []
    for dataset, stages in sorted({(group.dataset, group.stages) for group in groups}):
        mine = [g for g in groups if (g.dataset, g.stages) == (dataset, stages)]
        number = 3 if stages == 10 else 1
        for convention in CONVENTIONS:
            tables.append(_stage_table(number, mine, convention))
        tables.append(_forgetting_table(mine))
        if len({alignment(group) for group in mine if alignment(group)}) > 1:
            tables.append(_ablation_table(mine))
    return tables


def mean_and_deviation(values: Sequence[float | None]) -> str:
    """Mean and, for several values, standard deviation; a dash for none."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{mean(known):.1f}" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _stage_table(number: int, groups: Sequence[Group], convention: str) -> TextTable:
    old, new = CONVENTIONS[convention]
    stages = groups[0].stages
    names = ("All", old.capitalize(), new.capitalize())
    headings = ["Method", "S0"]
    headings += [f"S{stage} {name}" for stage in range(1, stages + 1) for name in names]
    headings += [f"Avg {name}" for name in names]
    rows = []
    for group in groups:
        cells = [group.label, mean_and_deviation([run.records[0]["all"] for run in group.runs])]
        for stage in range(1, stages + 1):
            for key in ("all", old, new):
                cells.append(mean_and_deviation([run.records[stage][key] for run in group.runs]))
        for key in ("all", old, new):
            cells.append(mean_and_deviation([run.summary["average"][key] for run in group.runs]))
        rows.append(cells)
        row = published.stage_row(group.dataset, group.method, stages)
        if row is not None and not group.variant:
            rows.append(_paper_row(row, convention, stages))
    title = f"Table {number} ({groups[0].setting}): {convention} convention"
    return TextTable(title, headings, rows, _note(groups, rows))


def _paper_row(row: published.PublishedRow, convention: str, stages: int) -> list[str]:
    """Render a published row; its Old and New only in the convention it was printed in."""
    same = row.convention == convention

    def cells(figures: dict[str, float]) -> list[str]:
        parts = [figures.get("old"), figures.get("new")] if same else [None, None]
        return [_figure(value) for value in (figures.get("all"), *parts)]

    each = row.stages or [{} for _ in range(stages)]
    middle = [cell for figures in each for cell in cells(figures)]
    return [PAPER, _figure(row.stage0_all), *middle, *cells(row.average)]


def _forgetting_table(groups: Sequence[Group]) -> TextTable:
    headings = ["Method", *(f"M_f {form}" for form in FORMS), *(f"M_d {form}" for form in FORMS)]
    rows = []
    for group in groups:
        cells = [group.label]
        for kind in ("forgetting", "discovery"):
            cells += [
                mean_and_deviation([run.summary[kind][form] for run in group.runs])
                for form in FORMS
            ]
        rows.append(cells)
        figures = published.forgetting_discovery(group.dataset, group.method)
        if figures is not None and group.stages == 5 and not group.variant:
            printed = "goal_own" if group.method == "goal" else "goal_rivals"
            shown = [_figure(figures[0]) if form == printed else "–" for form in FORMS]
            shown += [_figure(figures[1]) if form == printed else "–" for form in FORMS]
            rows.append([PAPER, *shown])
    title = f"Table 2 ({groups[0].setting}): forgetting and discovery"
    return TextTable(title, headings, rows, _note(groups, rows))


def alignment(group: Group) -> tuple[bool, bool] | None:
    """Whether supervised and unsupervised alignment are on; None for methods without them."""
    settings = group.runs[0].values["method"]
    flags = settings.get("supervised_alignment"), settings.get("unsupervised_alignment")
    return (flags[0], flags[1]) if all(isinstance(flag, bool) for flag in flags) else None


def _ablation_table(groups: Sequence[Group]) -> TextTable:
    headings = ["Supervised", "Unsupervised", "All", "Base", "Novel", "paper All", "paper Base"]
    rows = []
    for group in groups:
        flags = alignment(group)
        if flags is None:
            continue
        ours = [
            mean_and_deviation([run.summary["average"][key] for run in group.runs])
            for key in ("all", "base", "novel")
        ]
        paper = (published.ablation(group.dataset, *flags) if group.stages == 5 else None) or {}
        theirs = [_figure(paper.get(key)) for key in ("all", "old", "new")]
        rows.append(["yes" if flag else "no" for flag in flags] + ours + theirs)
    title = f"Table 4 ({groups[0].dataset}): alignment ablation, base/novel convention"
    return TextTable(title, [*headings, "paper Novel"], sorted(rows), _note(groups, rows))


def sweep_table(key: str, folders: Sequence[tuple[str, Path]]) -> TextTable:
    """Averages over stages >= 1 for each value of one setting, over its seeds."""
    by_value: dict[str, list[RunRecord]] = {}
    for value, folder in folders:
        by_value.setdefault(value.removeprefix(f"{key}="), []).append(load_run(folder))
    keys = ("all", "base", "novel", "seen", "unseen")
    rows = [
        [
            value,
            *(mean_and_deviation([run.summary["average"][name] for run in runs]) for name in keys),
        ]
        for value, runs in by_value.items()
    ]
    first = folders[0][1]
    summary = load_run(first).summary
    title = f"{summary['method']} on {summary['dataset']} over {key}, averages of stages >= 1"
    note = f"Percent; mean ± standard deviation over seeds. Backbone: {summary['backbone']}."
    return TextTable(title, [key, *(name.capitalize() for name in keys)], rows, note)


def short_name(backbone: str) -> str:
    """A hub id as it is; of a folder or file its name, for its place says nothing to others."""
    path = Path(backbone)
    return path.name if path.is_absolute() or backbone.startswith(".") else backbone


def _note(groups: Sequence[Group], rows: Sequence[Sequence[str]]) -> str:
    """What the figures are, and of published rows only where there are some."""
    backbones = ", ".join(sorted({short_name(group.backbone) for group in groups}))
    note = f"Percent; mean ± standard deviation over n seeds. Backbone: {backbones}."
    if all(row[0] != PAPER for row in rows):
        return note
    return note + (
        " Paper rows: DINO ViT-B/16, with Old and New only in the convention they were printed "
        "in. Only All compares across rows."
    )


def _mean_of(cell: str) -> float | None:
    """The mean that a cell shows, None if it shows none."""
    try:
        return float(cell.partition(" ±")[0])
    except ValueError:
        return None
