"""From an image to the square of pixels that the backbone takes: a clean view, or a random one."""

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, model_validator

from goal.common.section import Section

Pixels = npt.NDArray[np.uint8]

MOST_RESIZED = 2**24  # 256 x 65,536: what is cut off beyond is not missed


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
    """Resize the shorter side; an image of that size already stays as it is.

    Of an image so long that this would make more than `MOST_RESIZED` pixels, the middle is taken.
    """
    return _shorter_side(image, settings.resize, Image.Resampling.BICUBIC)


def _shorter_side(image: Image.Image, side: int, resampling: Image.Resampling) -> Image.Image:
    image = _not_too_long(image, side)
    width, height = image.size
    least = min(width, height)
    size = (int(side * width / least), int(side * height / least))
    return image if size == image.size else image.resize(size, resampling)


def _not_too_long(image: Image.Image, side: int) -> Image.Image:
    """Cut the ends off an image whose longer side would become endless."""
    width, height = image.size
    most = max(1, int(min(width, height) * max(1.0, MOST_RESIZED / side**2)))
    if max(width, height) <= most:
        return image
    left, top = max(0, width - most) // 2, max(0, height - most) // 2
    return image.crop((left, top, left + min(width, most), top + min(height, most)))


class Preparation(Protocol):
    """How a whole network wants its images, as its own files say."""

    @property
    def image_size(self) -> int:
        """Side of the square."""

    @property
    def resize(self) -> int:
        """What the shorter side is resized to before the crop."""

    @property
    def centre_crop(self) -> bool:
        """Whether the square is cut out; otherwise the whole image becomes one."""

    @property
    def interpolation(self) -> str:
        """Pillow's filter, in small letters."""


def prepared(image: Image.Image, how: Preparation) -> Pixels:
    """Bring an image to the square that a network wants: uint8, shape (3, S, S)."""
    resampling = Image.Resampling[how.interpolation.upper()]
    size = how.image_size
    if not how.centre_crop:
        return _square(image.resize((size, size), resampling), 0, 0, size)
    return _centre(_shorter_side(image, how.resize, resampling), size)


def clean(image: Image.Image, settings: TransformSettings) -> Pixels:
    """Resize and cut out the centre: uint8, shape (3, S, S), always the same."""
    return _centre(resized(image, settings), settings.image_size)


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


def _centre(whole: Image.Image, size: int) -> Pixels:
    left = round((whole.width - size) / 2)
    top = round((whole.height - size) / 2)
    return _square(whole, left, top, size)


def _square(image: Image.Image, left: int, top: int, size: int) -> Pixels:
    crop = image.crop((left, top, left + size, top + size))
    return np.ascontiguousarray(np.asarray(crop, dtype=np.uint8).transpose(2, 0, 1))
