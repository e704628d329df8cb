"""How a backbone wants its images: size, crop and pixel statistics, as its own files say."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from goal.common.errors import GoalError
from goal.common.section import shorten

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_SIDE = 4096
_USUAL_SIDE = 224
_MARGIN = 8 / 7  # 256 for 224: the usual room around a centre crop
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's numbers


@dataclass(frozen=True)
class Preprocessing:
    """From an upright RGB image to what the network takes.

    Attributes:
        image_size: Side of the square input.
        resize: What the shorter side is resized to before the crop; `image_size` without one.
        centre_crop: Whether the square is cut out of the middle; otherwise the whole image is
            resized to a square, whatever its proportions.
        interpolation: Filter of the resizing, by Pillow's name.
        mean: Subtracted from each channel of pixels from 0 to 1.
        std: What each channel is then divided by.
        fallbacks: What the backbone's files do not say, and what is taken instead.
    """

    image_size: int
    resize: int
    centre_crop: bool
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fallbacks: tuple[str, ...] = ()

    def facts(self) -> list[Any]:
        """Everything that changes a feature, as plain values."""
        geometry = [self.image_size, self.resize, self.centre_crop, self.interpolation]
        return [*geometry, list(self.mean), list(self.std)]

    def at(self, image_size: int | None) -> "Preprocessing":
        """The same at another size of the square, with as much around it; None changes nothing."""
        if image_size is None or image_size == self.image_size:
            return self
        resize = max(image_size, round(self.resize * image_size / self.image_size))
        return replace(self, image_size=image_size, resize=resize)

    def room_to_crop(self) -> int:
        """What the shorter side is resized to where random crops need a margin, as in training."""
        return self.resize if self.centre_crop else margin_around(self.image_size)


def margin_around(image_size: int) -> int:
    """What the shorter side is resized to where only the size of the crop is known."""
    return int(image_size * _MARGIN)


def read_preprocessing(
    config: Mapping[str, Any], processor: Mapping[str, Any], where: str
) -> Preprocessing:
    """Read what config.json and preprocessor_config.json (empty if there is none) say.

    Args:
        config: The network's config.json.
        processor: Its preprocessor_config.json.
        where: Name of the backbone, for errors.
    """
    read = _Reader(processor, where)
    fallbacks: list[str] = []
    image_size, resize, crop = _geometry(read, config, fallbacks)
    mean, std = _statistics(read, fallbacks)
    return Preprocessing(image_size, resize, crop, _filter(read), mean, std, tuple(fallbacks))


class _Reader:
    """Typed access to a file of a stranger."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def bad(self, key: str, expected: str, given: Any = None) -> GoalError:
        given = self.values.get(key) if given is None else given
        return GoalError(
            f"The backbone {self.where} says {key} = {shorten(repr(given), 80)} in its "
            f"preprocessor_config.json or config.json; expected {expected}. Correct the file, or "
            f"fetch the backbone anew."
        )

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(key, "true or false")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if not _is_number(value) or value <= 0:
            raise self.bad(key, "a number above 0")
        return float(value)

    def channels(self, key: str) -> tuple[float, ...] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list | tuple)
            or len(value) != 3
            or not all(map(_is_number, value))
        ):
            raise self.bad(key, "three finite numbers, one per colour")
        return tuple(float(part) for part in value)

    def side(self, key: str, value: Any) -> int:
        """One side of a square from any of the ways to write it."""
        if isinstance(value, Mapping):
            sides = [value[name] for name in ("height", "width") if name in value]
            sides = sides or [value.get("shortest_edge")]
        else:
            sides = list(value) if isinstance(value, list | tuple) else [value]
        if not sides or any(side != sides[0] for side in sides):
            raise self.bad(key, "a square: goal cuts images to squares", value)
        side = sides[0]
        if not isinstance(side, int) or isinstance(side, bool) or not 1 <= side <= MOST_SIDE:
            raise self.bad(key, f"a whole number of pixels from 1 to {MOST_SIDE}", value)
        return side


def _geometry(
    read: _Reader, config: Mapping[str, Any], fallbacks: list[str]
) -> tuple[int, int, bool]:
    """Side of the input, side before the crop, and whether there is a crop."""
    values = read.values
    size, crop_size = values.get("size"), values.get("crop_size")
    cropped = read.flag("do_center_crop", crop_size is not None) and crop_size is not None
    resizes = read.flag("do_resize", True)
    if size is None or not resizes:
        return _native(read, config, crop_size if cropped else None, fallbacks)
    side = read.side("size", size)
    if cropped:
        crop = read.side("crop_size", crop_size)
        return crop, max(crop, side), True
    if values.get("crop_pct") is not None and side < 384:  # ConvNeXt's rule
        return side, max(side, int(side / min(1.0, read.number("crop_pct", 1.0)))), True
    shortest = isinstance(size, Mapping) and "shortest_edge" in size
    return side, side, shortest and values.get("crop_pct") is None


def _native(
    read: _Reader, config: Mapping[str, Any], crop_size: Any, fallbacks: list[str]
) -> tuple[int, int, bool]:
    """The size that config.json names, where the preprocessor's file names none."""
    vision = config.get("vision_config")
    named = (vision if isinstance(vision, Mapping) else config).get("image_size")
    if crop_size is not None:
        side = read.side("crop_size", crop_size)
    elif named is not None:
        side = read.side("image_size", named)
    else:
        side = _USUAL_SIDE
        fallbacks.append(f"no image size is named: {side} pixels")
    resize = margin_around(side)
    fallbacks.append(f"no resizing is named: the shorter side to {resize}, then a centre crop")
    return side, resize, True


def _filter(read: _Reader) -> str:
    number = read.values.get("resample", _FILTERS.index("bicubic"))
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(_FILTERS):
        raise read.bad("resample", f"a number from 0 to {len(_FILTERS) - 1}")
    return _FILTERS[number]


def _statistics(read: _Reader, fallbacks: list[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation for pixels from 0 to 1, whatever scale the file gives them in."""
    mean, std = read.channels("image_mean"), read.channels("image_std")
    if not read.flag("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if mean is None or std is None:
        fallbacks.append("no pixel mean and deviation are named: ImageNet's")
    mean, std = mean or IMAGENET_MEAN, std or IMAGENET_STD
    if min(std) < 1e-6:
        raise read.bad("image_std", "three numbers above 0", std)
    if read.flag("rescale_offset", False):
        raise read.bad("rescale_offset", "false: goal scales pixels to 0..1")
    rescale = read.number("rescale_factor", 1 / 255) if read.flag("do_rescale", True) else 1.0
    if math.isclose(rescale, 1 / 255, rel_tol=1e-4):
        return mean, std
    scale = 255 * rescale
    return tuple(value / scale for value in mean), tuple(value / scale for value in std)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
