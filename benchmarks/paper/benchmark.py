"""One benchmark: a dataset in a setting, and the experiments on it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paper import references
from benchmarks.paper.rows import Row
from goal.methods.registry import METHODS
from goal.runs.grid import Cell
from goal.settings.plain import merge, parse_assignments, read_settings
from goal.settings.settings import compose


@dataclass(frozen=True)
class Benchmark:
    """A dataset in a setting, and the rows of its tables.

    Attributes:
        dataset: Its name.
        command: How to start it, without places.
        setting: The file of settings that all rows share; the page lies beside it.
        sizes: Settings of methods that have them.
        own: What papers give to a method alone, by method.
        parts: Rows by part.
        about: The page's beginning: what is real here, and what is smaller than in print.
    """

    dataset: str
    command: str
    setting: Path
    sizes: Mapping[str, int]
    own: Mapping[str, Mapping[str, Any]]
    parts: Mapping[str, tuple[Row, ...]]
    about: str = field(repr=False)

    @property
    def page(self) -> Path:
        """Where the tables go."""
        return self.setting.parent / "REPRODUCTION.md"

    def cells(
        self,
        parts: Sequence[str],
        seeds: Sequence[int],
        out: Path,
        flags: Mapping[str, Any],
        only: Sequence[str] | None = None,
    ) -> list[Cell]:
        """Experiments in the order they are run: seed by seed, late rows after the others."""
        rows = [(part, row) for part in parts for row in self.parts[part]]
        rows = [(part, row) for part, row in rows if only is None or row.name in only]
        rows.sort(key=lambda entry: entry[1].late)
        return [self.cell(part, row, seed, out, flags) for seed in seeds for part, row in rows]

    def cell(self, part: str, row: Row, seed: int, out: Path, flags: Mapping[str, Any]) -> Cell:
        """Compose one experiment."""
        references.register()
        fields = METHODS[row.method].method.Settings.model_fields
        sizes = {key: value for key, value in self.sizes.items() if key in fields}
        settings = compose(
            read_settings(self.setting),
            merge({"method": {"name": row.method, **sizes}}, self.own.get(row.method, {})),
            {"seed": seed},
            flags,
            parse_assignments(row.assignments),
        )
        folder = folder_of(out, part, row) / f"seed-{seed}"
        return Cell(f"{part}: {row.name}, seed {seed}", settings, folder)


def folder_of(out: Path, part: str, row: Row) -> Path:
    """Folder of a row's runs, one per seed in it; sweeps are named as `goal sweep` does."""
    return out / part / re.sub(r"[^\w.=]+", "-", row.name.replace("+", "plus")).strip("-")
