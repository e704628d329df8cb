"""How images are brought to size, against transformers' own image processors."""

from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image

from goal.backbone.preprocessing import IMAGENET_MEAN, IMAGENET_STD, read_preprocessing
from goal.common.errors import GoalError
from goal.data.transforms import prepared

PROCESSORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "clip": (transformers.CLIPImageProcessorPil, {"size": 24, "crop_size": 24}),
    "dinov2": (
        transformers.BitImageProcessorPil,
        {"size": {"shortest_edge": 32}, "crop_size": {"height": 28, "width": 28}, "resample": 3},
    ),
    "vit": (transformers.ViTImageProcessorPil, {"size": {"height": 24, "width": 24}}),
    "siglip": (transformers.SiglipImageProcessorPil, {"size": {"height": 20, "width": 20}}),
    "convnext": (transformers.ConvNextImageProcessorPil, {"size": {"shortest_edge": 28}}),
    "unscaled": (
        transformers.ViTImageProcessorPil,
        {"size": {"height": 24, "width": 24}, "rescale_factor": 1 / 127.5, "do_normalize": False},
    ),
}


@pytest.mark.parametrize("kind", PROCESSORS)
@pytest.mark.parametrize("shape", [(40, 60), (64, 36)])
def test_pixels_are_those_of_the_backbones_processor(kind: str, shape: tuple[int, int]) -> None:
    build, values = PROCESSORS[kind]
    processor = build(**values)
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
    truth = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
    how = read_preprocessing({}, processor.to_dict(), kind)
    mean, std = (np.array(part).reshape(3, 1, 1) for part in (how.mean, how.std))
    found = (prepared(image, how) / 255 - mean) / std
    assert how.fallbacks == () and found.shape == truth.shape
    np.testing.assert_allclose(found, truth, atol=1e-4)


def test_what_is_not_said_is_stated() -> None:
    how = read_preprocessing({"image_size": 16}, {}, "x")
    assert (how.image_size, how.resize, how.centre_crop) == (16, 18, True)
    assert (how.mean, how.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert any("ImageNet" in text for text in how.fallbacks)
    assert read_preprocessing({}, {}, "x").image_size == 224
    inner = {"vision_config": {"image_size": 32}}
    assert read_preprocessing(inner, {}, "x").image_size == 32


BAD: list[dict[str, Any]] = [
    {"image_mean": [0.5, 0.5]},
    {"image_mean": "0.5"},
    {"image_mean": [0.5, 0.5, float("nan")]},
    {"image_std": [0.5, 0.5, float("nan")]},
    {"image_std": [0.5, 0.0, 0.5]},
    {"image_std": [0.5, -1.0, 0.5]},
    {"image_std": [True, True, True]},
    {"size": -224},
    {"size": "224"},
    {"size": 10**9},
    {"size": {"height": 224, "width": 100}},
    {"size": {}},
    {"size": {"height": [1], "width": [2]}},
    {"size": 224, "crop_size": 2.5},
    {"size": 224, "crop_pct": 0},
    {"do_resize": "yes"},
    {"resample": 9},
    {"resample": "bicubic"},
    {"rescale_factor": float("inf")},
    {"rescale_factor": 0},
]


@pytest.mark.parametrize("values", BAD, ids=str)
def test_values_that_cannot_be_used_are_named(values: dict[str, Any]) -> None:
    with pytest.raises(GoalError) as caught:
        read_preprocessing({}, values, "my-backbone")
    text = str(caught.value)
    assert "my-backbone" in text and list(values)[-1] in text and "fetch" in text
