"""All settings of an experiment: typed, frozen, strict, composed from layers.

Layers, each over the one before: the dataset's defaults, the recipe, then ``--set`` and flags.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, SerializeAsAny, field_validator

from goal.backbone.trunk import BackboneSettings
from goal.bank import BankSettings
from goal.data import DATASETS
from goal.data.base import DataSettings
from goal.data.transforms import TransformSettings
from goal.errors import GoalError, did_you_mean, pick
from goal.methods import METHODS
from goal.methods.base import MethodSettings
from goal.protocol import ProtocolSettings
from goal.schema import Section, shorten

DEFAULT_DATASET = "digits"
DEFAULT_METHOD = "goal"

# Where things are and how often they are saved does not change what is computed.
_NOT_IDENTITY = {
    "data": {"root", "download"},
    "bank": {"folder", "budget_gb"},
    "training": {"checkpoint_seconds", "share_base", "prefetch"},
}


class TrainingSettings(Section):
    """The loop: SGD with momentum, cosine to a thousandth of the rate, a fresh start each stage.

    `selection` is which epoch's model goes on: the last one, or (only to repeat what others
    published) the one that is best on the test set. `share_base` lets runs that train the same
    base model at stage 0 train it once; it changes no result. `precision` is that of the
    matrix products in tail and projector; weights and losses stay float32. `prefetch` reads the
    next batch's tokens on a thread during the backward pass: for GPUs and slow disks; it changes
    no result.
    """

    base_epochs: int = Field(default=100, ge=0)
    stage_epochs: int = Field(default=30, ge=0)
    base_lr: float = Field(default=0.1, gt=0)
    stage_lr: float = Field(default=0.01, gt=0)
    batch_size: int = Field(default=128, ge=2)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-5, ge=0)
    selection: Literal["last", "best_on_test"] = "last"
    precision: Literal["float32", "bfloat16"] = "float32"
    prefetch: bool = False
    share_base: bool = True
    checkpoint_seconds: float = Field(default=60.0, ge=0)


class Settings(Section):
    """Everything that determines an experiment.

    `threads` is the number of CPU threads (by default torch's choice): tiny models are faster on
    one, and results are the same bits only for the same number.
    """

    seed: int = Field(default=0, ge=0)
    device: str = "cpu"
    threads: int | None = Field(default=None, gt=0)
    data: DataSettings = DataSettings()
    protocol: ProtocolSettings = ProtocolSettings()
    transform: TransformSettings = TransformSettings()
    backbone: BackboneSettings = BackboneSettings()
    bank: BankSettings = BankSettings()
    training: TrainingSettings = TrainingSettings()
    method: SerializeAsAny[MethodSettings]

    @field_validator("method", mode="before")
    @classmethod
    def _typed_method(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        spec = pick(METHODS, str(value.get("name", DEFAULT_METHOD)), "method")
        return spec.method.Settings.parse({**spec.preset, **value}, "settings under 'method'")

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain values, as they are written to files."""
        return self.model_dump(mode="json")

    def identity(self) -> dict[str, Any]:
        """Return what determines the result, by dotted key."""
        return identity_of(self.plain())

    def hash(self) -> str:
        """Short hash of `identity`."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def compose(*layers: Mapping[str, Any]) -> Settings:
    """Merge layers of plain values over the dataset's defaults and validate the result."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    for section in ("data", "method"):
        if not isinstance(merged.get(section, {}), Mapping):
            raise GoalError(f"'{section}' must be a section with keys, such as {section}.name.")
    dataset = str(merged.get("data", {}).get("name", DEFAULT_DATASET))
    names = {"data": {"name": dataset}, "method": {"name": DEFAULT_METHOD}}
    defaults = pick(DATASETS, dataset, "dataset").defaults
    return Settings.parse(merge(merge(names, defaults), merged))


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


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases and repeated keys; 1e-4 is a number, as everyone expects."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: a few lines of them can stand for more than fits into memory."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that comes twice, of which one would be ignored."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.YAMLError(f"the key '{twice[0]}' comes more than once")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str, where: str) -> Any:
    """Read YAML safely, or raise an error that says where it is wrong."""
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise GoalError(f"{shorten(where)} is not valid YAML: it is nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise GoalError(f"{shorten(where)} is not valid YAML: {shorten(str(error))}") from None


def read_settings(path: Path) -> dict[str, Any]:
    """Read a settings or recipe file as plain values."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GoalError(f"Cannot read the settings file {path}: {error}") from None
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise GoalError(f"{path} must hold sections with keys; it holds {type(values).__name__}.")
    return values


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by ``dataset/method``."""
    root = Path(str(files("goal") / "recipes"))
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


def difference(ours: Settings, theirs: Settings) -> list[str]:
    """Name the settings in which two experiments differ, one line each."""
    left, right = ours.identity(), theirs.identity()
    keys = [key for key in sorted(left | right) if left.get(key) != right.get(key)]
    return [f"{key}: {left.get(key)!r} in the folder, {right.get(key)!r} asked for" for key in keys]
