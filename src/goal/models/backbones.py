"""The backbone of a model: where it is now, and whether it may be fetched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goal.backbone.load import load_backbone
from goal.backbone.trunk import Backbone, BackboneSettings
from goal.common.errors import GoalError
from goal.common.escaping import file_name


def open_backbone(settings: BackboneSettings, *, download: bool) -> Backbone:
    """Load a backbone; the network is asked only with `download`.

    Raises:
        GoalError: It is not where the settings say, or not on this machine.
    """
    place = Path(settings.name)
    if place.is_absolute() and not place.exists():
        raise GoalError(
            f"The backbone is no longer at {file_name(place)}. Say where it is now: "
            "--backbone FOLDER (in Python: backbone=...). It is checked, and the model stays as "
            "it is."
        )
    with _network(download):
        return load_backbone(settings)


@contextmanager
def _network(allowed: bool) -> Iterator[None]:
    """Keep the hub's library from asking the network unless that is allowed."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not allowed
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
