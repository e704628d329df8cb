"""Which experiments the benchmark consists of, and the settings of each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cifar100 import references
from goal.methods.happy import ABLATION
from goal.methods.registry import METHODS
from goal.runs.grid import Cell
from goal.settings.plain import parse_assignments, read_settings
from goal.settings.settings import compose

SETTING = Path(__file__).parent / "setting.yaml"
SIZES = {"projector_hidden": 256, "projector_out": 128}
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Row:
    """One line of a table: a method, and what of its settings differs from the benchmark's."""

    name: str
    method: str
    assignments: tuple[str, ...] = ()

    @property
    def published(self) -> bool:
        """Whether the row is the method as such, which papers have a figure for."""
        return self.name == self.method


# Own settings of a method that its paper gives for CIFAR-100 (see the shipped recipes).
OWN: dict[str, dict[str, Any]] = {
    "simgcd": {"entropy_weight": 4.0},
    "simgcd_plus": {"entropy_weight": 4.0},
}
OWN_TRAINING: dict[str, dict[str, Any]] = {"metagcd": {"stage_lr": 1e-4}}


# Whether supervised and unsupervised alignment are on in each row of Table 4.
ALIGNMENTS = {
    "neither": (False, False),
    "supervised": (True, False),
    "unsupervised": (False, True),
    "both": (True, True),
}


def _aligned(name: str) -> Row:
    switches = zip(("supervised", "unsupervised"), ALIGNMENTS[name], strict=True)
    off = (f"method.{kind}_alignment=false" for kind, on in switches if not on)
    return Row(name, "goal", tuple(off))


TEN = ("protocol.stages=10",)
# What GOAL's head initialisation and weight of distillation give to Happy.
FAIR = Row(
    "happy with goal's head initialisation and distillation",
    "happy",
    ("method.head_init=novelty", "method.distillation_weight=10"),
)
COUNTED = Row("goal-plus with estimated K", "goal-plus", ("protocol.estimate_new=true",))
# Ten counts that err upwards can need more vertices than the narrow projector has room for.
COUNTED_TEN = replace(
    COUNTED, assignments=("protocol.estimate_new=true", "method.projector_out=256")
)
BOUND = Row("goal-plus, oracle (a bound)", "goal-plus-oracle", (references.CERTAIN,))
FIRST = Row("where goal-plus began", "goal-plus-first", references.FIRST)
FIRST_BOUND = Row(
    "where goal-plus began, oracle (a bound)", "goal-plus-first-oracle", references.FIRST
)

PARTS: dict[str, tuple[Row, ...]] = {
    "five-stages": (
        *(Row(name, name) for name in METHODS.shipped),
        FAIR,
        COUNTED,
        BOUND,
        FIRST,
        FIRST_BOUND,
    ),
    "ten-stages": (
        *(Row(name, name, TEN) for name in ("goal-plus", "vb_cgcd", "dydm", "goal", "happy")),
        Row("metagcd", "metagcd", TEN),
        *(
            replace(row, assignments=(*row.assignments, *TEN))
            for row in (COUNTED_TEN, BOUND, FIRST)
        ),
    ),
    "alignment": tuple(_aligned(name) for name in ALIGNMENTS),
    "alpha": tuple(
        Row(f"method.alpha={alpha}", "goal", (f"method.alpha={alpha}",)) for alpha in ALPHAS
    ),
    "happy-ablation": tuple(
        Row(name, "happy", tuple(f"method.{key}={value}" for key, value in changed.items()))
        for name, changed in ABLATION.items()
    ),
}


def cells(
    part: str,
    seeds: Sequence[int],
    out: Path,
    flags: dict[str, Any],
    only: Sequence[str] | None = None,
) -> list[Cell]:
    """Return the experiments of a part, seed by seed; `only` names the rows to take."""
    rows = [row for row in PARTS[part] if only is None or row.name in only]
    return [cell(part, row, seed, out, flags) for seed in seeds for row in rows]


def cell(part: str, row: Row, seed: int, out: Path, flags: dict[str, Any]) -> Cell:
    """Compose one experiment."""
    references.register()
    fields = METHODS[row.method].method.Settings.model_fields
    sizes = {key: value for key, value in SIZES.items() if key in fields}
    own = {"name": row.method, **sizes, **OWN.get(row.method, {})}
    settings = compose(
        read_settings(SETTING),
        {"method": own, "training": OWN_TRAINING.get(row.method, {}), "seed": seed},
        flags,
        parse_assignments(row.assignments),
    )
    folder = folder_of(out, part, row) / f"seed-{seed}"
    return Cell(f"{part}: {row.name}, seed {seed}", settings, folder)


def folder_of(out: Path, part: str, row: Row) -> Path:
    """Folder of a row's runs, one per seed in it; sweeps are named as `goal sweep` does."""
    return out / part / re.sub(r"[^\w.=]+", "-", row.name.replace("+", "plus")).strip("-")
