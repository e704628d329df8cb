"""Images as people hand them over: paths, Pillow images, arrays or tensors."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from PIL import Image

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.decoding import DECODING, UnreadableImage, explain, upright_rgb
from goal.data.images import DIGEST_BYTES, FileImages, Images, Subset, content_digest, file_path
from goal.data.screening import Screened, screen

_READERS = min(8, os.cpu_count() or 1)
_PART = 64  # images that a thread looks at before it comes back for more
_BLANK_BYTES = 65536  # more than a compressed picture of one colour usually takes


@dataclass(frozen=True)
class ImageSet:
    """Images with a name each, and what was skipped on the way, with reasons.

    Attributes:
        images: The images.
        names: A name for each, fit to be shown.
        kept: For each, its position among all images that were given.
        skipped: Name and reason of each image that cannot be used.
        source: Absolute path of the folder that was given, None if there is none.
    """

    images: Images
    names: list[str]
    kept: list[int]
    skipped: list[tuple[str, str]]
    source: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def without(self, lost: Mapping[int, str]) -> "ImageSet":
        """Leave out images that proved unreadable, by position in the set."""
        if not lost:
            return self
        reasons = [(self.names[index], reason) for index, reason in lost.items()]
        left = self.chosen([index for index in range(len(self)) if index not in lost])
        return replace(left, skipped=self.skipped + reasons)

    def chosen(self, positions: Sequence[int]) -> "ImageSet":
        """Some of the images, by position in the set."""
        return replace(
            self,
            images=Subset(self.images, np.array(positions, dtype=np.int64)),
            names=[self.names[index] for index in positions],
            kept=[self.kept[index] for index in positions],
        )

    def places(self) -> list[str | None]:
        """Path of each image's file, relative to `source` if it lies there; None without a file.

        A path that is no text (bytes of another encoding) counts as none.
        """
        paths = [file_path(self.images, index) for index in range(len(self))]
        return [None if path is None else _place(path, self.source) for path in paths]

    def contents(self, lost: dict[int, str]) -> list[bytes]:
        """Digest of what each image holds; unreadable ones are entered in `lost`, by position."""
        with ThreadPoolExecutor(_READERS) as pool:
            parts = pool.map(lambda part: [self._content(at, lost) for at in part], self._parts())
            return [content for part in parts for content in part]

    def _parts(self) -> list[range]:
        """Positions in parts: handing each image to a thread by itself costs more than a hash."""
        return [range(start, min(start + _PART, len(self))) for start in range(0, len(self), _PART)]

    def _content(self, index: int, lost: dict[int, str]) -> bytes:
        try:
            return content_digest(self.images, index)
        except UnreadableImage as error:
            lost[index] = error.reason
            return b""

    def blank(self) -> list[str]:
        """Names of images that show one colour all over.

        Files larger than such a picture usually is in a compressed format are not opened.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            parts = pool.map(lambda part: [at for at in part if self._is_blank(at)], self._parts())
            return [self.names[at] for part in parts for at in part]

    def _is_blank(self, index: int) -> bool:
        try:
            return could_be_blank(self.images, index) and is_blank(self.images.image(index))
        except UnreadableImage:
            return False

    def key(self, *facts: Any) -> str:
        """Hash of the images and of plain facts: what work on them depends on."""
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for index in range(len(self)):
            try:
                digest.update(self.images.digest(index))
            except UnreadableImage:
                digest.update(b"unreadable")
        return digest.hexdigest()[:32]


def from_files(found: Screened, folder: Path | None = None) -> ImageSet:
    """Wrap screened files, which were found in a folder if one is given."""
    skipped = [(file_name(path), reason) for path, reason in found.skipped]
    names = [file_name(path) for path in found.paths]
    source = None if folder is None else _absolute(folder)
    return ImageSet(_unlabelled(found.paths), names, list(range(len(names))), skipped, source)


def _absolute(path: Path) -> str | None:
    """A path from the root on, no link followed; None if it is no text."""
    whole = os.path.normpath(path.absolute())
    return whole if _is_text(whole) else None


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place(path: Path, source: str | None) -> str | None:
    whole = _absolute(path)
    if whole is None or source is None or not PurePath(whole).is_relative_to(source):
        return whole
    return PurePath(whole).relative_to(source).as_posix()


def gather(images: Any, reporter: Reporter) -> ImageSet:
    """Take paths, Pillow images, arrays ``(N, H, W[, C])`` or tensors ``(N[, C], H, W)``.

    Values are bytes from 0 to 255, or floats from 0 to 1. Paths that cannot be read are skipped.
    """
    items = _itemised(images)
    if not items:
        raise GoalError("No images were given.")
    if all(isinstance(item, str | Path) for item in items):
        paths = [Path(item) for item in items]
        found = screen(paths, reporter)
        lost = {path for path, _ in found.skipped}
        kept = [index for index, path in enumerate(paths) if path not in lost]
        files = from_files(found)
        return ImageSet(files.images, files.names, kept, files.skipped)
    held = [_as_pillow(item, index) for index, item in enumerate(items)]
    names = [f"image {index}" for index in range(len(held))]
    return ImageSet(HeldImages(held), names, list(range(len(held))), [])


def is_blank(image: Image.Image) -> bool:
    """Whether an image shows one colour all over."""
    return all(low == high for low, high in image.convert("RGB").getextrema())  # type: ignore[misc]


def could_be_blank(images: Images, index: int) -> bool:
    """Whether an image is held in memory, or its file as small as blank ones are."""
    if isinstance(images, Subset):
        return could_be_blank(images.images, int(images.ids[index]))
    if not isinstance(images, FileImages):
        return True
    path = images.paths[index]
    try:
        return path.stat().st_size <= _BLANK_BYTES
    except OSError as error:
        raise UnreadableImage(path, explain(error)) from error


class HeldImages:
    """Pillow images in memory."""

    def __init__(self, images: Sequence[Image.Image]) -> None:
        self._images = images
        self.labels: IntArray = np.zeros(len(images), np.int64)

    def image(self, index: int) -> Image.Image:
        """Return image `index`."""
        return self._images[index]

    def digest(self, index: int) -> bytes:
        """Hash of size and pixels."""
        image = self._images[index]
        head = f"{DECODING}|{image.size}|".encode()
        return hashlib.sha256(head + image.tobytes()).digest()[:DIGEST_BYTES]


def _unlabelled(paths: Sequence[Path]) -> FileImages:
    return FileImages(paths, np.zeros(len(paths), np.int64))


def _itemised(images: Any) -> list[Any]:
    """Split what was given into single images, channels last."""
    if isinstance(images, str | Path | Image.Image):
        raise GoalError("Give a list of images, even for a single one: [image].")
    _refuse_open_file(images, "What was given")
    if hasattr(images, "detach"):  # a tensor, told without importing torch
        images = images.detach().cpu().numpy()
        images = _channels_last(images) if images.ndim == 4 else images
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS" and images.ndim < 3:
        raise GoalError(
            f"An array of images has the shape (N, H, W) or (N, H, W, C); given: {images.shape}."
        )
    if not isinstance(images, Iterable):
        raise GoalError(f"Cannot take images from {type(images).__name__}: give a list.")
    return list(images)


def _refuse_open_file(item: Any, what: str) -> None:
    if hasattr(item, "read"):
        raise GoalError(
            f"{what} is an open file ({type(item).__name__}). Give its path, or open it as an "
            "image: PIL.Image.open(file)."
        )


def _channels_last(values: Any) -> Any:
    """Tensors have their channels before height and width."""
    first = values.ndim >= 3 and values.shape[-3] in (1, 3)
    return np.moveaxis(values, -3, -1) if first else values


def _as_pillow(item: Any, index: int) -> Image.Image:
    if isinstance(item, Image.Image):
        return upright_rgb(item)
    _refuse_open_file(item, f"Image {index}")
    if hasattr(item, "detach"):
        item = _channels_last(item.detach().cpu().numpy())
    values = np.asarray(item)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        raise GoalError(
            f"Image {index} has the shape {values.shape}; expected (H, W), (H, W, 3) or (H, W, 4)."
        )
    if not values.size:
        raise GoalError(f"Image {index} has no pixels: its shape is {values.shape}.")
    return upright_rgb(Image.fromarray(_bytes(values, index)))


def _bytes(values: Any, index: int) -> Any:
    """Bring pixel values to 0..255."""
    if values.dtype.kind == "f":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise GoalError(
                f"Image {index} holds floats outside 0 to 1. Scale them, or give bytes 0 to 255."
            )
        return np.rint(values * 255).astype(np.uint8)
    if values.dtype == np.uint16:
        return np.rint(values / 257).astype(np.uint8)
    if values.dtype.kind not in "iub" or values.min() < 0 or values.max() > 255:
        raise GoalError(
            f"Image {index} holds {values.dtype} beyond 0 to 255. Give bytes, or floats 0 to 1."
        )
    return (values * 255 if values.dtype.kind == "b" else values).astype(np.uint8)
