"""Shipped recipes: published settings for a dataset and a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goal.common.errors import GoalError, did_you_mean
from goal.settings.plain import parse_assignments, read_settings

if TYPE_CHECKING:
    from goal.settings.settings import Settings


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by ``dataset/method``."""
    root = Path(str(files("goal.settings") / "shipped"))
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(root.glob("*/*.yaml"))}


def find_recipe(name: str) -> Path:
    """Return the file a recipe argument stands for: a path, or the name of a shipped one."""
    if Path(name).is_file():
        return Path(name)
    shipped = shipped_recipes()
    key = name.removesuffix(".yaml")
    if key in shipped:
        return shipped[key]
    raise GoalError(
        f"No recipe '{name}': there is no such file, and no shipped recipe of that name."
        f"{did_you_mean(key, shipped)} `goal list recipes` shows them all."
    )


def assemble(
    recipe: str | None,
    dataset: str | None,
    method: str | None,
    flags: Mapping[str, Any],
    assignments: Iterable[str] = (),
) -> Settings:
    """Compose settings: the recipe (given, or shipped for the pair), flags, then assignments."""
    from goal.settings.settings import DEFAULT_DATASET, DEFAULT_METHOD, compose  # imports torch

    chosen: dict[str, Any] = {}
    if dataset is not None:
        chosen["data"] = {"name": dataset}
    if method is not None:
        chosen["method"] = {"name": method}
    if recipe is not None:
        layer = read_settings(find_recipe(recipe))
    else:
        pair = f"{dataset or DEFAULT_DATASET}/{method or DEFAULT_METHOD}"
        shipped = shipped_recipes().get(pair)
        layer = read_settings(shipped) if shipped else {}
    return compose(layer, chosen, flags, parse_assignments(assignments))
