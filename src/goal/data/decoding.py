"""From a file to an upright RGB image, or a reason why not: the one decoder of the package.

Used as they look: palettes, CMYK, the first frame of an animation, turned photographs (upright by
their EXIF tag), 16 bits per pixel (scaled to 8) and transparency (over white). Refused: what Pillow
cannot read to its end, more than `MOST_PIXELS`, and 32-bit pixels beyond the range of 16 bits,
which have no agreed white.
"""

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from goal.common.errors import GoalError

DECODING = 2
"""Changes whenever the same file may give other pixels: a part of every file's digest."""

MOST_PIXELS = 120_000_000
_DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SEE_THROUGH = ("RGBA", "LA", "PA", "La", "RGBa")


class UnreadableImage(GoalError):
    """An image that cannot be used; `reason` says why in a few words."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"Cannot read the image {name}: {reason}. Repair the file or remove it.")
        self.reason = reason


def decode(path: object) -> Image.Image:
    """Read an image file as upright RGB, or raise `UnreadableImage`."""
    try:
        with Image.open(path) as opened:  # type: ignore[arg-type]
            check_size(path, opened)
            return upright_rgb(opened)
    except UnreadableImage:
        raise
    except Exception as error:  # Pillow's readers raise almost anything on damaged bytes
        raise UnreadableImage(path, explain(error)) from error


def check_size(path: object, image: Image.Image) -> None:
    """Raise `UnreadableImage` for an image whose pixels would fill the memory."""
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableImage(
            path, f"{image.width} x {image.height} pixels are more than {MOST_PIXELS:,}"
        )


def explain(error: Exception) -> str:
    """Put an error of a reader into a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "no image format that Pillow knows"
    text = str(error).splitlines()
    return text[0] if text and text[0] else type(error).__name__


def upright_rgb(image: Image.Image) -> Image.Image:
    """Turn an opened image upright and into RGB."""
    turned = ImageOps.exif_transpose(image)
    if turned.mode in _DEEP or turned.mode == "F":
        turned = _shallow(turned)
    if turned.mode in _SEE_THROUGH or "transparency" in turned.info:
        solid = turned.convert("RGBA")
        white = Image.new("RGBA", solid.size, "white")
        return Image.alpha_composite(white, solid).convert("RGB")
    return turned.convert("RGB")


def _shallow(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values to 8 bits."""
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        span = f"from {values.min()} to {values.max()}"
        raise ValueError(f"32-bit pixels {span} have no agreed white")
    return Image.fromarray(np.rint(values / 257).astype(np.uint8))
