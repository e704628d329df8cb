"""Shipped recipes: a dataset's settings, and what differs per method.

There is one file per dataset in ``shipped/``:

    title     what `goal list recipes` says of it
    shared    settings for every method; those under ``method`` go to methods that have the key
    methods   by method: its own settings, and under ``training`` those of the loop

So every method, also one from a plug-in, has a recipe for every dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goal.common.errors import GoalError, did_you_mean
from goal.methods.registry import METHODS
from goal.settings.plain import merge, parse_assignments, read_settings, without_download

if TYPE_CHECKING:
    from goal.settings.settings import Settings


def recipe_titles() -> dict[str, str]:
    """What each shipped recipe is, by ``dataset/method``."""
    return {
        f"{dataset}/{method}": f"{content['title']}: {spec.summary}"
        for dataset, content in _shipped().items()
        for method, spec in METHODS.items()
    }


def read_recipe(name: str) -> dict[str, Any]:
    """Settings that a recipe argument stands for: a file's, or those of a shipped recipe."""
    if Path(name).is_file():
        return without_download(read_settings(Path(name), given=True))
    known, key = recipe_titles(), name.removesuffix(".yaml")
    if key in known:
        return shipped_recipe(*key.split("/"))
    raise GoalError(
        f"No recipe '{name}': there is no such file, and no shipped recipe of that name."
        f"{did_you_mean(key, known)} `goal list recipes` shows them all."
    )


def shipped_recipe(dataset: str, method: str) -> dict[str, Any]:
    """Settings of the shipped recipe for a pair; nothing for a dataset or method without one."""
    content, spec = _shipped().get(dataset), METHODS.get(method)
    if content is None or spec is None:
        return {}
    shared = dict(content["shared"])
    keys = spec.method.Settings.model_fields
    own = {key: value for key, value in shared.pop("method", {}).items() if key in keys}
    different = dict(content["methods"].get(method, {}))
    training = {"training": different.pop("training", {})}
    names = {"data": {"name": dataset}, "method": {"name": method, **own, **different}}
    return merge(merge(names, shared), training)


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    """The files, by dataset."""
    root = Path(str(files("goal.settings") / "shipped"))
    return {path.stem: read_settings(path, given=True) for path in sorted(root.glob("*.yaml"))}


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
        layer = read_recipe(recipe)
    else:
        layer = shipped_recipe(dataset or DEFAULT_DATASET, method or DEFAULT_METHOD)
    return compose(layer, chosen, flags, parse_assignments(assignments))
