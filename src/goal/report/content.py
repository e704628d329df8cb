"""What the page shows, as plain data: results of all groups of runs, one run of each in detail.

Numbers that come by the thousand (maps, matrices) are packed into base64; everything is bounded,
and what is left out is said in `notes`.
"""

import base64
import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from goal.common.errors import GoalError
from goal.evaluation.chosen import MAX_CLASSES, Choice, choose, evenly
from goal.pages.galleries import Card, Picture, card_data, data_uri
from goal.report import published
from goal.report.compare import FORMS, Group, group_runs
from goal.report.runs import RunRecord, axis_of, swept
from goal.report.style import method_style
from goal.storage import archives, files

SERIES = (
    *("all", "base", "novel", "seen", "unseen", "base_identity", "nmi", "ari"),
    *("nc1", "nc2", "nc3", "nc3_vertices", "nc4", "vertex_alignment"),
    *("confident_size", "confident_novel", "confident_purity"),
)
MAX_DETAILS = 24
MAX_THUMBNAILS = 6000
MAX_HEAT_CLASSES = 120
_MAP_RANGE = 10_000

Stage = dict[str, npt.NDArray[Any]]


def build(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the page's data: benchmarks (a dataset and a number of stages), thumbnails, notes."""
    groups = group_runs(runs)
    keys = sorted({(group.dataset, group.stages) for group in groups})
    shelf = _Shelf()
    benchmarks = []
    for key in keys:
        mine = [group for group in groups if (group.dataset, group.stages) == key]
        mine.sort(key=lambda group: -_average_all(group))
        described = [_describe(group, mine) for group in mine]
        for group, entry in zip(mine[:MAX_DETAILS], described[:MAX_DETAILS], strict=True):
            entry["details"] = _details(group.runs[0])
        shelf.fill(key[0], mine[:MAX_DETAILS], described)
        about = {"title": mine[0].setting, "dataset": key[0], "sweep": sweep_curve(mine)}
        benchmarks.append({**about, "groups": described})
    notes = shelf.notes()
    if len(groups) > MAX_DETAILS:
        notes.append(f"Details are shown of {MAX_DETAILS} groups of runs, the best on All.")
    if any(len(group.runs) > 1 for group in groups):
        notes.append("Details are of the first seed of each group; curves and tables of all seeds.")
    return {"benchmarks": benchmarks, "thumbnails": shelf.thumbnails, "notes": notes}


def sweep_curve(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Averages against the one setting that `goal sweep` varied; None where there is no sweep."""
    by_key: dict[str, dict[str, list[RunRecord]]] = {}
    for run in (run for group in groups if group.stages for run in group.runs):
        key, value = swept(run)
        if value is not None:
            by_key.setdefault(key, {}).setdefault(value, []).append(run)
    for key, by_value in by_key.items():
        if len(by_value) < 2:
            continue
        values, places = axis_of(by_value)
        return {
            "key": key,
            "method": by_value[values[0]][0].summary["method"],
            "values": values,
            "places": places,
            "measures": {
                measure: [
                    _mean_and_deviation(r.summary["average"][measure] for r in by_value[value])
                    for value in values
                ]
                for measure in ("all", "base", "novel", "seen", "unseen")
            },
        }
    return None


def _average_all(group: Group) -> float:
    """Mean All over stages 1 and later, or at stage 0 where there is nothing else."""
    summaries = [run.summary for run in group.runs]
    values = [s["average"]["all"] if group.stages else s["stage0_all"] for s in summaries]
    return float(mean(values))


def _mean_and_deviation(values: Iterable[Any]) -> list[float] | None:
    """Mean and standard deviation of what is a figure, rounded; None for nothing."""
    known = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if not known:
        return None
    return [round(mean(known), 4), round(stdev(known), 4) if len(known) > 1 else 0.0]


def _describe(group: Group, rivals: Sequence[Group]) -> dict[str, Any]:
    runs = group.runs
    variants = [rival for rival in rivals if rival.method == group.method]
    records = [[run.records[index] for run in runs] for index in range(group.stages + 1)]
    row = None if group.variant else published.stage_row(group.dataset, group.method, group.stages)
    return {
        "label": group.method + (f" ({group.variant})" if group.variant else ""),
        "method": group.method,
        "backbone": group.backbone,
        "seeds": [run.summary["seed"] for run in runs],
        "style": vars(method_style(group.method, variants.index(group))),
        "selection": runs[0].summary["selection"],
        "stages": [
            {key: _mean_and_deviation(r.get(key) for r in stage) for key in SERIES}
            | {key: stage[0].get(key) for key in ("num_test", "num_train", "num_known", "num_new")}
            for stage in records
        ],
        "average": {
            key: _mean_and_deviation(run.summary["average"][key] for run in runs)
            for key in ("all", "base", "novel", "seen", "unseen")
        },
        "forgetting": {
            f: _mean_and_deviation(r.summary["forgetting"][f] for r in runs) for f in FORMS
        },
        "discovery": {
            f: _mean_and_deviation(r.summary["discovery"][f] for r in runs) for f in FORMS
        },
        "paper": None if row is None else vars(row),
        "paper_forms": _paper_forms(group),
        "details": None,
    }


def _paper_forms(group: Group) -> dict[str, Any] | None:
    figures = published.forgetting_discovery(group.dataset, group.method)
    if figures is None or group.stages != 5 or group.variant:
        return None
    form = "goal_own" if group.method == "goal" else "goal_rivals"
    return {"form": form, "forgetting": figures[0], "discovery": figures[1]}


# -- one run in detail --------------------------------------------------------------------------


def _details(run: RunRecord) -> dict[str, Any]:
    names = class_names(run)
    return {
        "seed": run.summary["seed"],
        "folder": run.folder.name,
        "settings": run.settings,
        "versions": run.summary["versions"],
        "wall_seconds": run.summary["wall_seconds"],
        "stage_seconds": run.summary.get("stage_seconds", []),
        "history": _history(run.history),
        "names": names,
        "births": births(run, len(names)),
        "stages": [_stage(run, record) for record in run.records],
    }


def _history(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Loss terms as columns; a term that a stage lacks is null there."""
    terms = list(dict.fromkeys(key for row in rows for key in row if key not in ("stage", "epoch")))
    columns = {
        term: [None if row.get(term) is None else float(f"{row[term]:.4g}") for row in rows]
        for term in terms
    }
    return {
        "stage": [r["stage"] for r in rows],
        "epoch": [r["epoch"] for r in rows],
        "terms": columns,
    }


def class_names(run: RunRecord) -> list[str]:
    """Names in class order; numbers where the run did not keep names."""
    path = run.folder / "classes.json"
    if path.is_file():
        names = files.read_json(path).get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise GoalError(f"{path} is damaged: it holds no list of names.")
        return names
    last = run.records[-1]
    return [str(i) for i in range(last.get("num_known", 0) + last.get("num_new", 0))]


def births(run: RunRecord, count: int) -> list[int]:
    """Stage at which each class appeared."""
    result = [0] * count
    for record in run.records[1:]:
        first = record.get("num_known", count)
        for index in range(first, min(count, first + record.get("num_new", 0))):
            result[index] = record["stage"]
    return result


def load_stage(run: RunRecord, index: int) -> Stage | None:
    """Read the arrays of a stage; None for a run that did not keep what pages need."""
    path = files.inside(run.folder, f"stages/stage-{index}.npz")
    if not path.exists():
        return None
    found = archives.read_arrays(path)
    return found if "owner" in found else None


def _stage(run: RunRecord, record: dict[str, Any]) -> dict[str, Any] | None:
    arrays = load_stage(run, record["stage"])
    if arrays is None:
        return None
    base = run.records[0]["num_new"]
    maps = {}
    for space in ("embeddings", "features"):
        if f"map_{space}" in arrays:
            maps[space] = _map(arrays, space)
    return {
        "confusion": _confusion(arrays, base, record["num_known"]),
        "matrix": _class_confusion(arrays),
        "maps": maps,
        "cards": None,
    }


def _confusion(arrays: Stage, base: int, known: int) -> dict[str, Any]:
    """Count images by kind of true class and kind of the class they were taken for."""
    named = arrays["owner"][arrays["predictions"]]
    truth = arrays["truth"]
    edges = np.array([0, base, max(base, known)])
    kind_true = np.searchsorted(edges, truth, side="right") - 1
    kind_named = np.where(named < 0, 3, np.searchsorted(edges, named, side="right") - 1)
    counts = np.zeros((3, 4), dtype=np.int64)
    np.add.at(counts, (kind_true, kind_named), 1)
    right = np.bincount(kind_true[named == truth], minlength=3)
    return {"counts": counts.tolist(), "right": right.tolist()}


def _class_confusion(arrays: Stage) -> dict[str, Any]:
    """Percent of each true class (row) taken for each class (column), as bytes."""
    named, truth = arrays["owner"][arrays["predictions"]], arrays["truth"]
    classes = evenly(np.unique(truth), MAX_HEAT_CLASSES)
    totals = np.bincount(truth, minlength=int(truth.max()) + 1)
    rows, columns = (np.searchsorted(classes, values) for values in (truth, named))
    hit = [
        classes[np.minimum(p, len(classes) - 1)] == v for p, v in ((rows, truth), (columns, named))
    ]
    inside = hit[0] & hit[1]
    cells = np.zeros((len(classes), len(classes)))
    np.add.at(cells, (rows[inside], columns[inside]), 1)
    percent = np.rint(100 * cells / totals[classes][:, None])
    return {
        "classes": classes.tolist(),
        "of": len(np.unique(truth)),
        "cells": _packed(percent, np.uint8),
    }


def _map(arrays: Stage, space: str) -> dict[str, Any]:
    points = arrays[f"map_{space}"]
    vertices = arrays["map_vertices"] if space == "embeddings" else points[:0]
    both = np.concatenate([points, vertices]).astype(np.float64)
    low, high = both.min(axis=0), both.max(axis=0)
    scale = _MAP_RANGE / max(float((high - low).max()), 1e-12)
    flat = np.rint((both - low) * scale)
    images = arrays["map_images"]
    matrix = arrays[f"cosines_{space}"]
    places = evenly(np.arange(len(matrix)), MAX_HEAT_CLASSES)
    return {
        "points": _packed(flat[: len(points)], np.uint16),
        "vertices": _packed(flat[len(points) :], np.uint16),
        "owner": arrays["owner"].tolist() if len(vertices) else [],
        "size": ((high - low) * scale).round().tolist(),
        "truth": _packed(arrays["truth"][images], np.uint16),
        "named": _packed(arrays["owner"][arrays["predictions"][images]] + 1, np.uint16),
        "of": len(arrays["truth"]),
        "explained": round(float(arrays[f"map_{space}_explained"]), 4),
        "classes": arrays["cosine_classes"][places].tolist(),
        "class_count": len(np.unique(arrays["truth"])),
        "cosines": _packed(np.rint(100 * matrix[np.ix_(places, places)]) + 100, np.uint8),
    }


def _packed(values: npt.NDArray[Any], kind: type[np.unsignedinteger[Any]]) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(kind)).tobytes()).decode()


# -- galleries ------------------------------------------------------------------------------------


class _Shelf:
    """Thumbnails of the page, each once; the last stage of every group comes first."""

    def __init__(self) -> None:
        self.thumbnails: dict[str, str] = {}
        self._left_out = 0
        self._many_classes = False

    def fill(
        self, dataset: str, groups: Sequence[Group], described: Sequence[dict[str, Any]]
    ) -> None:
        """Give every detailed stage its cards, as long as there is room for their pictures."""
        depth = max(group.stages for group in groups)
        for index in range(depth, 0, -1):
            for group, entry in zip(groups, described, strict=False):
                stage = entry["details"]["stages"][index]
                if stage is not None:
                    stage["cards"] = self._cards(dataset, group.runs[0], index)

    def notes(self) -> list[str]:
        """Say what is not shown."""
        notes = []
        if self._left_out:
            notes.append(
                f"Galleries left out, to keep the page at {MAX_THUMBNAILS:,} thumbnails: "
                f"{self._left_out}, of earlier stages or further runs. Report fewer runs to see "
                "them."
            )
        if self._many_classes:
            notes.append(f"Galleries show {MAX_CLASSES} discovered classes, evenly spread.")
        return notes

    def _cards(self, dataset: str, run: RunRecord, index: int) -> list[dict[str, Any]] | None:
        arrays = load_stage(run, index)
        path = files.inside(run.folder, f"stages/thumbnails-{index}.zip")
        if arrays is None or not path.is_file():
            return None
        with archives.opened_zip(path) as archive:
            keys = {f"{dataset}/{name}": name for name in archive.namelist()}
            missing = [key for key in keys if key not in self.thumbnails]
            if len(self.thumbnails) + len(missing) > MAX_THUMBNAILS:
                self._left_out += 1
                return None
            self.thumbnails |= {key: data_uri(archive.read(keys[key])) for key in missing}
        names, born = class_names(run), births(run, len(class_names(run)))
        base = run.records[0]["num_new"]
        parts = (arrays["predictions"], arrays["truth"], arrays["owner"], arrays["confidence"])
        choices = choose(*parts, base)
        self._many_classes |= len(choices) == MAX_CLASSES
        owners = arrays["owner"]
        choices.sort(key=lambda choice: (owners[choice.predicted] < 0, owners[choice.predicted]))
        return [card_data(_card(choice, arrays, dataset, names, born)) for choice in choices]


def _card(
    choice: Choice, arrays: Stage, dataset: str, names: Sequence[str], born: Sequence[int]
) -> Card:
    owner = int(arrays["owner"][choice.predicted])
    if owner < 0:
        title, note = "No true class matches", f"{choice.size} test images"
    else:
        right = 100 * (choice.size - choice.wrong) / max(1, choice.size)
        title = names[owner]
        note = f"found at stage {born[owner]} · {choice.size} test images, {right:.0f}% right"

    def pictures(positions: npt.NDArray[np.int64]) -> list[Picture]:
        return [
            Picture(f"{dataset}/{arrays['test_ids'][p]}.webp", names[int(arrays["truth"][p])])
            for p in positions.tolist()
        ]

    rows = {
        "Most confident": pictures(choice.most),
        "Least confident": pictures(choice.least),
        "Mistaken, true class below": pictures(choice.mistaken),
    }
    return Card(title, note if choice.size else "no test image was taken for it", rows)
