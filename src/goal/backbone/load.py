"""Backbones: a frozen trunk and a trained tail, by name, folder or file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers.image_processing_base import ImageProcessingMixin

from goal.backbone.dino_pth import load_dino_pth
from goal.backbone.names import BACKBONES, EMBEDDED
from goal.backbone.tail import Tail
from goal.backbone.trunk import Backbone, BackboneSettings, Trunk, split
from goal.common.errors import GoalError, did_you_mean

__all__ = ["Backbone", "BackboneSettings", "Tail", "Trunk", "load_backbone"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def load_backbone(settings: BackboneSettings) -> Backbone:
    """Load the trunk and tail that `settings.name` stands for."""
    name, path = settings.name, Path(settings.name)
    if name == EMBEDDED:
        with as_file(files("goal.backbone") / "embedded" / name) as folder:
            return _from_pretrained(str(folder), settings)
    if path.suffix == ".pth":
        if not path.is_file():
            raise GoalError(f"No such weight file: {path}.")
        return split(load_dino_pth(path), settings, IMAGENET_MEAN, IMAGENET_STD)
    if path.is_dir() and not (path / "config.json").is_file():
        raise GoalError(f"{path} is not a transformers model folder: it has no config.json.")
    if not path.is_dir() and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise GoalError(
            f"Unknown backbone '{name}'.{did_you_mean(name, BACKBONES)} Give a hub id such as "
            f"facebook/dino-vitb16, a transformers folder, a DINO .pth file, or '{EMBEDDED}'."
        )
    return _from_pretrained(name, settings)


def _from_pretrained(name: str, settings: BackboneSettings) -> Backbone:
    try:
        with quiet_transformers():
            model, info = transformers.AutoModel.from_pretrained(
                name,
                output_loading_info=True,
                trust_remote_code=False,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # reported below, by name
            )
        pixels = _pixel_statistics(name)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise GoalError(_unloadable(name, error)) from error
    mismatched = [str(entry[0]) for entry in info["mismatched_keys"]]
    wrong = sorted(
        {*info["missing_keys"], *mismatched} - {"pooler.dense.weight", "pooler.dense.bias"}
    )
    if wrong:
        raise GoalError(
            f"The weights of {name} are incomplete or of another shape than its config.json "
            f"says: {', '.join(wrong[:5])}."
        )
    if hasattr(model, "pooler") and model.config.model_type == "vit":
        model.pooler = None
    return split(model, settings, *pixels)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' own warnings and progress bars; we report in our own words."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _pixel_statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation the network expects, ImageNet's where its folder does not say."""
    try:
        config: dict[str, Any] = ImageProcessingMixin.get_image_processor_dict(name)[0]
    except OSError:
        if (Path(name) / "preprocessor_config.json").exists():
            raise
        config = {}
    mean, std = config.get("image_mean", IMAGENET_MEAN), config.get("image_std", IMAGENET_STD)
    return tuple(mean), tuple(std)


def _unloadable(name: str, error: Exception) -> str:
    if Path(name).is_dir():
        return f"Cannot load the backbone in {name}: {error}"
    return (
        f"Cannot load the backbone '{name}': it is not on this machine and could not be fetched. "
        f"On a machine with network run `hf download {name} --local-dir FOLDER`, copy FOLDER "
        f"here, and give its path as backbone.name. ({type(error).__name__})"
    )
