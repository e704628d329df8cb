"""From a file to an upright RGB image, or a reason why not: the one decoder of the package.

Used as they look: palettes, CMYK, the first frame of an animation, turned photographs (upright by
their EXIF tag), 16 bits per pixel (scaled to 8) and transparency (over white). Refused: formats
other than `FORMATS`, what Pillow cannot read to its end, more than `MOST_PIXELS`, and 32-bit
pixels beyond the range of 16 bits, which have no agreed white.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.storage import files

DECODING = 2
"""Changes whenever the same file may give other pixels: a part of every file's digest."""

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is read, whatever a file's name says. Pillow hands some others to outside programs."""

MOST_PIXELS = 120_000_000
_DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SEE_THROUGH = ("RGBA", "LA", "PA", "La", "RGBa")


class UnreadableImage(GoalError):
    """An image that cannot be used; `reason` says why in a few words."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(
            f"Cannot read the image {_shown(name)}: {reason}. Repair the file or remove it."
        )
        self.reason = reason


@contextmanager
def opened(path: object) -> Iterator[Image.Image]:
    """Read the header of an image file in one of `FORMATS`; nothing of it is decoded yet.

    Args:
        path: A path, or a file that is open already.
    """
    with ExitStack() as stack:
        is_path = isinstance(path, str | os.PathLike)
        stream = stack.enter_context(opened_file(Path(path))) if is_path else path  # type: ignore[arg-type]
        yield stack.enter_context(Image.open(stream, formats=FORMATS))  # type: ignore[arg-type]


def opened_file(path: Path) -> BufferedReader:
    """Open an image file; what a name may stand for besides, such as a pipe, is not waited for."""
    try:
        return files.opened(path, given=True)
    except GoalError as error:
        cause = error.__cause__
        why = explain(cause) if isinstance(cause, Exception) else "not a regular file"
        raise UnreadableImage(path, why) from error


def decode(path: object, near: int | None = None) -> Image.Image:
    """Read an image file as upright RGB, or raise `UnreadableImage`.

    With `near`, a JPEG may come out smaller, but with sides of at least that many pixels.

    Threads that decode at the same time share a budget of memory, so that a few large images
    take turns. A lack of memory all the same is an error of its own, never a reason to skip.
    """
    try:
        with opened(path) as image:
            check_size(path, image)
            if near is not None:
                image.draft("RGB", (near, near))
            with _BUDGET.holding(_bytes_needed(image)):
                return upright_rgb(image)
    except UnreadableImage:
        raise
    except MemoryError as error:
        raise GoalError(
            f"There is not enough memory to decode the image {_shown(path)}. Make it smaller, "
            f"remove it, or leave more memory to goal."
        ) from error
    except Exception as error:  # Pillow's readers raise almost anything on damaged bytes
        raise UnreadableImage(path, explain(error)) from error


def check_size(path: object, image: Image.Image) -> None:
    """Raise `UnreadableImage` for an image whose pixels would fill the memory."""
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableImage(
            path, f"{image.width} x {image.height} pixels are more than {MOST_PIXELS:,}"
        )


class Budget:
    """Memory that threads share: each takes what it needs, and waits while others hold it.

    Whoever needs more than there is in all works alone.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, amount: int) -> Iterator[None]:
        """Hold `amount` bytes, waiting until they are free."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + amount <= self._total)
            self._held += amount
        try:
            yield
        finally:
            with self._changed:
                self._held -= amount
                self._changed.notify_all()


_BUDGET = Budget(1_000_000_000)


def _bytes_needed(image: Image.Image) -> int:
    """Upper bound, from the header, of what decoding holds at one time: copies included."""
    plain = image.mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr") and (
        "transparency" not in image.info
    )
    return image.width * image.height * (12 if plain else 24)


def _shown(path: object) -> str:
    return file_name(path) if isinstance(path, str | os.PathLike) else str(path)


def explain(error: Exception) -> str:
    """Put an error of a reader into a few words."""
    if isinstance(error, UnidentifiedImageError):
        return f"none of the image formats {', '.join(FORMATS)}"
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
