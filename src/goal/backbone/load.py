"""Backbones: a frozen trunk and a trained tail, by name, folder or file."""

from dataclasses import replace

from goal.backbone.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from goal.backbone.pretrained import load_pretrained, quiet_transformers
from goal.backbone.tail import Tail
from goal.backbone.trunk import Backbone, BackboneSettings, Trunk, split

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Backbone",
    "BackboneSettings",
    "Tail",
    "Trunk",
    "load_backbone",
    "quiet_transformers",
]


def load_backbone(settings: BackboneSettings, download: bool = False) -> Backbone:
    """Load the trunk and tail that `settings.name` stands for.

    Args:
        settings: Which network, and the size of the tail where none is pretrained.
        download: Whether a hub id that is not on this machine may be fetched.
    """
    found = load_pretrained(settings.name, download)
    model = found.model
    if hasattr(model, "pooler") and model.config.model_type == "vit":
        model.pooler = None  # not used
    found.require_weights()
    how = found.preprocessing
    return replace(split(model, settings, how.mean, how.std), preprocessing=how)
