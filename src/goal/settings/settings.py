"""All settings of an experiment: typed, frozen, strict, composed from layers.

Layers, each over the one before: the dataset's defaults, the recipe, then ``--set`` and flags.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, SerializeAsAny, field_validator

from goal.backbone.preprocessing import margin_around
from goal.backbone.pretrained import peek_preprocessing
from goal.backbone.trunk import BackboneSettings
from goal.bank.bank import BankSettings
from goal.common.errors import GoalError, pick
from goal.common.section import Section
from goal.data.images import DataSettings
from goal.data.sets import DATASETS
from goal.data.transforms import TransformSettings
from goal.methods.base import MethodSettings
from goal.methods.registry import METHODS
from goal.protocol.stages import ProtocolSettings
from goal.settings.plain import identity_of, merge
from goal.settings.training import TrainingSettings

DEFAULT_DATASET = "digits"
DEFAULT_METHOD = "goal"


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
    merged = merge(merge(names, defaults), merged)
    return Settings.parse(_with_sizes(merged) if dataset == "folder" else merged)


def _with_sizes(merged: dict[str, Any]) -> dict[str, Any]:
    """Add what a person's own images leave open: the sizes that the backbone's files name."""
    given, backbone = merged.get("transform", {}), merged.get("backbone", {})
    if not isinstance(given, Mapping) or not isinstance(backbone, Mapping):
        return merged  # told by the validation
    if {"image_size", "resize"} <= given.keys():
        return merged
    native = peek_preprocessing(str(backbone.get("name", BackboneSettings().name)))
    if native is None:
        return merged
    sizes = {"image_size": native.image_size, "resize": native.room_to_crop()}
    if isinstance(wanted := given.get("image_size"), int) and wanted != native.image_size:
        sizes["resize"] = margin_around(wanted)
    elif isinstance(limit := given.get("resize"), int):
        sizes["image_size"] = min(limit, native.image_size)
    return merge({"transform": sizes}, merged)


def difference(ours: Settings, theirs: Settings) -> list[str]:
    """Name the settings in which two experiments differ, one line each."""
    left, right = ours.identity(), theirs.identity()
    keys = [key for key in sorted(left | right) if left.get(key) != right.get(key)]
    return [f"{key}: {left.get(key)!r} in the folder, {right.get(key)!r} asked for" for key in keys]
