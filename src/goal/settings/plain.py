"""Settings as trees of plain values: merged, flattened, and read from files and flags."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from goal.common.errors import GoalError
from goal.storage.files import read_text
from goal.storage.yaml_files import parse_yaml

# Where things are and how often they are saved does not change what is computed.
_NOT_IDENTITY = {
    "data": {"root", "download"},
    "bank": {"folder", "budget_gb"},
    "training": {"checkpoint_seconds", "share_base", "prefetch"},
}


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree of plain values over another."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return result


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn a tree into one level of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def identity_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of plain settings determines the result: no places, no saving intervals."""
    flat = flatten(plain)
    dropped = {f"{section}.{key}" for section, keys in _NOT_IDENTITY.items() for key in keys}
    if flat.get("data.name") == "folder":
        dropped -= {"data.root"}  # there the place is the data
    return {key: value for key, value in flat.items() if key not in dropped}


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Turn ``key.sub=value`` texts into a tree; values are read as YAML."""
    tree: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise GoalError(f"Cannot read --set {text!r}: write it as key.sub=value.")
        layer: dict[str, Any] = {}
        innermost = layer
        *parents, leaf = key.split(".")
        for part in parents:
            innermost = innermost.setdefault(part, {})
        innermost[leaf] = parse_yaml(value, f"--set {text}")
        tree = merge(tree, layer)
    return tree


def read_settings(path: Path, *, given: bool = False) -> dict[str, Any]:
    """Read a settings or recipe file as plain values; `given` as in `goal.storage.files.opened`."""
    values = parse_yaml(read_text(path, given=given), str(path))
    if not isinstance(values, dict):
        raise GoalError(f"{path} must hold sections with keys; it holds {type(values).__name__}.")
    return values


def without_download(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a file, less the wish to use the network: only a person at hand may have it."""
    data = layer.get("data")
    if not isinstance(data, Mapping) or "download" not in data:
        return dict(layer)
    return {**layer, "data": {key: value for key, value in data.items() if key != "download"}}
