"""Figures for papers, as PDF and PNG: accuracy by stage, sweeps, the ablation, forgetting.

Colours, dashes and markers are those of the report (`goal.report.style`). Values are means over
seeds, bands and bars one standard deviation.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from goal.common.errors import GoalError
from goal.report import published
from goal.report.compare import CONVENTIONS, Group, alignment, find_runs, group_runs
from goal.report.runs import RunRecord, axis_of, swept
from goal.report.style import HUES, Hue, method_style
from goal.runs.damage import blaming_damage
from goal.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOK = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # letters stay letters: publishers ask for it
    "svg.fonttype": "none",
}
_MOST_TICKS = 12
_MEASURES: dict[str, Hue] = {"all": "blue", "base": "grey", "novel": "orange"}


def write_figures(folders: Sequence[Path], out: Path) -> list[Path]:
    """Draw every figure that the runs have figures for; return the files written."""
    try:
        import matplotlib
    except ImportError:
        raise GoalError(
            "goal figures needs matplotlib: pip install 'goal-cgcd[figures]'."
        ) from None
    runs = find_runs(folders)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    damage = blaming_damage(run.folder for run in runs)
    with damage, matplotlib.rc_context(_LOOK):  # type: ignore[arg-type]
        for name, figure in _figures(runs):
            written += _save(figure, out, name)
    return written


def _figures(runs: Sequence[RunRecord]) -> Iterable[tuple[str, "Figure"]]:
    sweeps: dict[tuple[Path, str], list[RunRecord]] = {}
    others = []
    for run in runs:
        key, value = swept(run)
        if value is not None:
            sweeps.setdefault((run.folder.parent.parent, key), []).append(run)
        else:
            others.append(run)
    for (_, key), members in sorted(sweeps.items()):
        yield f"sweep-{members[0].summary['dataset']}-{key}", sweep_figure(key, members)
    groups = group_runs(others)
    for dataset, stages in sorted({(group.dataset, group.stages) for group in groups}):
        mine = [g for g in groups if (g.dataset, g.stages) == (dataset, stages)]
        if stages > 0:
            for convention in CONVENTIONS:
                name = f"accuracy-{dataset}-{stages}-{convention.replace('/', '-')}"
                yield name, accuracy_figure(mine, convention)
            yield f"forgetting-{dataset}-{stages}", forgetting_figure(mine)
        flagged = [group for group in mine if alignment(group)]
        if stages > 0 and len({alignment(group) for group in flagged}) > 1:
            yield f"ablation-{dataset}-{stages}", ablation_figure(flagged)


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def _canvas(width: float, height: float, columns: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, sharey=True)
    return figure, list(axes[0])


def _drawn(group: Group, groups: Sequence[Group]) -> dict[str, Any]:
    """Keyword arguments that draw a group's line and marker."""
    variants = [other for other in groups if other.method == group.method]
    style = method_style(group.method, variants.index(group))
    pattern = tuple(float(part) / 2 for part in style.dash.split())
    line = (0, pattern) if pattern else "solid"
    return {"color": style.light, "linestyle": line, "marker": style.marker}


def _name(group: Group) -> str:
    return group.method + (f" ({group.variant})" if group.variant else "")


def accuracy_figure(groups: Sequence[Group], convention: str) -> "Figure":
    """All, old and new by stage, a line for each method."""
    old, new = CONVENTIONS[convention]
    figure, axes = _canvas(7, 2.6, 3)
    for axis, key in zip(axes, ("all", old, new), strict=True):
        for group in groups:
            first = 0 if key != new else 1
            stages = list(range(first, group.stages + 1))
            cells = [
                _mean_and_deviation([run.records[s][key] for run in group.runs]) for s in stages
            ]
            means = [cell[0] for cell in cells]
            drawn = _drawn(group, groups)
            axis.plot(stages, means, label=_name(group), **drawn)
            if len(group.runs) > 1:
                low, high = ([m + sign * d for m, d in cells] for sign in (-1, 1))
                axis.fill_between(stages, low, high, color=drawn["color"], alpha=0.12, linewidth=0)
        axis.set_title("All" if key == "all" else f"{key.capitalize()} classes")
        axis.set_xlabel("Stage")
        axis.set_xticks(range(groups[0].stages + 1))
    axes[0].set_ylabel("Accuracy, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
    return figure


def forgetting_figure(groups: Sequence[Group]) -> "Figure":
    """Forgetting against discovery, both as Happy defines them: one definition for every method."""
    figure, (axis,) = _canvas(4.4, 3.4)
    for group in groups:
        lost = _mean_and_deviation([run.summary["forgetting"]["happy"] for run in group.runs])
        found = _mean_and_deviation([run.summary["discovery"]["happy"] for run in group.runs])
        drawn = _drawn(group, groups) | {"linestyle": "none"}
        axis.errorbar(
            lost[0], found[0], xerr=lost[1], yerr=found[1], label=_name(group), capsize=2, **drawn
        )
    axis.set_xlabel("Forgetting: largest drop of base accuracy, points")
    axis.set_ylabel("Discovery: mean unseen accuracy, %")
    figure.legend(loc="outside lower center", ncols=min(3, len(groups)))
    return figure


def ablation_figure(groups: Sequence[Group]) -> "Figure":
    """All, base and novel with each alignment on or off; published figures hatched beside."""
    figure, (axis,) = _canvas(4.4, 2.8)
    ordered = sorted(groups, key=lambda group: (alignment(group), group.label))
    rows = [published.ablation(g.dataset, *_flags(g)) if g.stages == 5 else None for g in ordered]
    beside = any(rows)
    width = 0.8 / len(_MEASURES) / (2 if beside else 1)
    for index, (key, hue) in enumerate(_MEASURES.items()):
        for place, (group, row) in enumerate(zip(ordered, rows, strict=True)):
            value, error = _mean_and_deviation([run.summary["average"][key] for run in group.runs])
            left = place - 0.4 + index * (0.8 / len(_MEASURES))
            label = key.capitalize() if place == 0 else None
            bar: dict[str, Any] = {"width": width, "align": "edge", "color": HUES[hue][0]}
            axis.bar(left, value, yerr=error or None, label=label, **bar)
            if row:
                figures = row[{"all": "all", "base": "old", "novel": "new"}[key]]
                axis.bar(left + width, figures, alpha=0.4, hatch="///", edgecolor="white", **bar)
    axis.set_xticks(range(len(ordered)), [_switches(group) for group in ordered])
    axis.set_ylabel("Average over stages, %")
    title = "Alignment ablation, base/novel" + (" (hatched: published)" if beside else "")
    axis.set_title(title)
    figure.legend(loc="outside lower center", ncols=len(_MEASURES))
    return figure


def _flags(group: Group) -> tuple[bool, bool]:
    flags = alignment(group)
    assert flags is not None
    return flags


def _switches(group: Group) -> str:
    supervised, unsupervised = _flags(group)
    names = [name for name, on in (("sup.", supervised), ("unsup.", unsupervised)) if on]
    return " + ".join(names) or "neither"


def sweep_figure(key: str, runs: Sequence[RunRecord]) -> "Figure":
    """All, base and novel, averaged over stages, against one setting."""
    by_value: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_value.setdefault(swept(run)[1] or "", []).append(run)
    values, places = axis_of(by_value)
    figure, (axis,) = _canvas(3.4, 2.6)
    for (measure, hue), marker in zip(_MEASURES.items(), "os^", strict=True):
        cells = [
            _mean_and_deviation([r.summary["average"][measure] for r in by_value[v]])
            for v in values
        ]
        colour = HUES[hue][0]
        means = [m for m, _ in cells]
        axis.plot(places, means, color=colour, marker=marker, label=measure.capitalize())
        low, high = ([m + sign * d for m, d in cells] for sign in (-1, 1))
        axis.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    if len(values) <= _MOST_TICKS:  # the values themselves: whole numbers stay whole
        axis.set_xticks(places, values)
    axis.set_xlabel(key)
    axis.set_ylabel("Average over stages, %")
    summary = runs[0].summary
    axis.set_title(f"{summary['method']} on {summary['dataset']}")
    figure.legend(loc="outside lower center", ncols=len(_MEASURES))
    return figure


def _save(figure: "Figure", out: Path, name: str) -> list[Path]:
    """Write the figure twice, without dates, so that the same runs give the same bytes."""
    safe = re.sub(r"[^\w.-]+", "-", name)
    paths = [out / f"{safe}.{kind}" for kind in ("pdf", "png")]
    for path in paths:
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        with replacing(path) as stream:
            figure.savefig(stream, format=path.suffix[1:], dpi=300, metadata=metadata)
    return paths
