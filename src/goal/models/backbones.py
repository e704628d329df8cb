"""The backbone of a model: where it is now, and whether it may be fetched."""

from pathlib import Path

from goal.backbone.features import Embedder, load_embedder
from goal.backbone.load import load_backbone
from goal.backbone.trunk import Backbone, BackboneSettings
from goal.common.errors import GoalError
from goal.common.escaping import file_name


def open_backbone(settings: BackboneSettings, *, download: bool) -> Backbone:
    """Load a backbone; the network is asked only with `download`.

    Raises:
        GoalError: It is not where the settings say, or not on this machine.
    """
    _require_place(settings.name)
    return load_backbone(settings, download)


def open_embedder(settings: BackboneSettings, image_size: int, *, download: bool) -> Embedder:
    """Load a whole backbone, in the same manner, for images of this size."""
    _require_place(settings.name)
    return load_embedder(settings.name, download, image_size)


def _require_place(name: str) -> None:
    place = Path(name)
    if place.is_absolute() and not place.exists():
        raise GoalError(
            f"The backbone is no longer at {file_name(place)}. Say where it is now: "
            "--backbone FOLDER (in Python: backbone=...). It is checked, and the model stays as "
            "it is."
        )
