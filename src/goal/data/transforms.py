"""From an image to the square of pixels that the backbone takes: a clean view, or a random one."""

from typing import Self

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, model_validator

from goal.common.section import Section

Pixels = npt.NDArray[np.uint8]


class TransformSettings(Section):
    """How images are cut to size.

    The shorter side is resized to `resize`, a square of `image_size` is cut out, and random views
    are mirrored half of the time if `flip`.
    """

    image_size: int = Field(default=224, ge=1)
    resize: int = Field(default=256, ge=1)
    flip: bool = True

    @model_validator(mode="after")
    def _crop_fits(self) -> Self:
        if self.image_size > self.resize:
            raise ValueError(
                f"image_size ({self.image_size}) must not exceed resize ({self.resize}): "
                "the square is cut out of the resized image"
            )
        return self


def resized(image: Image.Image, settings: TransformSettings) -> Image.Image:
    """Resize the shorter side; an image of that size already stays as it is."""
    width, height = image.size
    least = min(width, height)
    size = (int(settings.resize * width / least), int(settings.resize * height / least))
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


def clean(image: Image.Image, settings: TransformSettings) -> Pixels:
    """Resize and cut out the centre: uint8, shape (3, S, S), always the same."""
    whole = resized(image, settings)
    size = settings.image_size
    left = round((whole.width - size) / 2)
    top = round((whole.height - size) / 2)
    return _square(whole, left, top, size)


def augmented(image: Image.Image, settings: TransformSettings, rng: np.random.Generator) -> Pixels:
    """Resize, cut out a random square, perhaps mirror it: uint8, shape (3, S, S)."""
    whole = resized(image, settings)
    size = settings.image_size
    left = int(rng.integers(whole.width - size + 1))
    top = int(rng.integers(whole.height - size + 1))
    pixels = _square(whole, left, top, size)
    if settings.flip and rng.random() < 0.5:
        return np.ascontiguousarray(pixels[:, :, ::-1])
    return pixels


def describe(settings: TransformSettings) -> str:
    """One line that changes whenever the pixels may: a part of cache keys."""
    return (
        f"bicubic-resize={settings.resize} crop={settings.image_size} "
        f"flip={'yes' if settings.flip else 'no'}"
    )


def _square(image: Image.Image, left: int, top: int, size: int) -> Pixels:
    crop = image.crop((left, top, left + size, top + size))
    return np.ascontiguousarray(np.asarray(crop, dtype=np.uint8).transpose(2, 0, 1))
