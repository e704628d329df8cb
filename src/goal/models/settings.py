"""Settings of a model of one's own images: those of experiments, less dataset and protocol."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from goal.backbone.names import DEFAULT_EMBEDDER, EMBEDDED
from goal.common.errors import GoalError
from goal.data.sets import DATASETS
from goal.settings.plain import merge, parse_assignments
from goal.settings.recipes import shipped_recipe
from goal.settings.settings import Settings, compose

DEFAULT_MODEL_METHOD = "goal-plus"


def model_settings(
    method: str | None = None,
    backbone: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    assignments: Iterable[str] = (),
) -> Settings:
    """Compose the settings of a model; the embedded backbone brings those of the digits recipes."""
    flags: dict[str, Any] = {"method": {"name": method or DEFAULT_MODEL_METHOD}}
    flags["backbone"] = {"name": backbone or DEFAULT_EMBEDDER}
    if seed is not None:
        flags["seed"] = seed
    if device is not None:
        flags["device"] = device
    given = merge(merge(flags, settings or {}), parse_assignments(assignments))
    plain = compose(_beneath(given), given, {"data": {"name": "folder"}}).plain()
    name = plain["backbone"]["name"]
    if name != EMBEDDED and Path(name).exists():
        plain["backbone"]["name"] = str(Path(name).resolve())
    if plain["bank"]["views"] == "fresh":
        raise GoalError(
            "A model needs banked views: it must be able to skip a file that goes bad. "
            "Set bank.views to a number."
        )
    if plain["backbone"]["neck"] is not None:
        raise GoalError("backbone.neck is for experiments on one dataset. Leave it unset here.")
    return Settings.parse(plain)


def _beneath(given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that come with the embedded backbone: those of the images it was made for."""
    if given.get("backbone", {}).get("name") != EMBEDDED:
        return {}
    layer = merge(DATASETS["digits"].defaults, shipped_recipe("digits", given["method"]["name"]))
    return {key: value for key, value in layer.items() if key not in ("data", "protocol")}
