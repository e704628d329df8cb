"""What a dataset is: two sets of images with labels, read one image at a time."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.common.section import Section
from goal.data.decoding import DECODING, UnreadableImage, decode, explain, opened_file

DIGEST_BYTES = 16


class DataSettings(Section):
    """Which dataset, and where it is.

    `root` is the folder that holds datasets (or, for ``folder``, the folder of classes itself);
    `class_list` chooses the classes of ImageNet-100: ``happy`` or a file of wnids;
    `test_fraction` is what ``folder`` keeps for testing when it has no train/ and test/.
    """

    name: str = "digits"
    root: str = "data"
    download: bool = False
    class_list: str = "happy"
    test_fraction: float = Field(default=0.2, gt=0, lt=1)


class Images(Protocol):
    """Images in a fixed order, with their labels (class ids of the dataset, 0..C-1)."""

    @property
    def labels(self) -> IntArray:
        """Class id of every image, shape (N,)."""

    def image(self, index: int) -> Image.Image:
        """Decode image `index` as RGB."""

    def digest(self, index: int) -> bytes:
        """Return 16 bytes that identify the image's content: its key in the token bank."""


class ArrayImages:
    """Images held in memory as one uint8 array (N, H, W, 3)."""

    def __init__(self, pixels: npt.NDArray[np.uint8], labels: IntArray) -> None:
        self.pixels = pixels
        self.labels = labels

    def image(self, index: int) -> Image.Image:
        """Return image `index`."""
        return Image.fromarray(self.pixels[index])

    def digest(self, index: int) -> bytes:
        """Hash of shape and pixels."""
        pixels = np.ascontiguousarray(self.pixels[index])
        head = repr(pixels.shape).encode()
        return hashlib.sha256(head + pixels.tobytes()).digest()[:DIGEST_BYTES]


class FileImages:
    """Images in files, decoded when asked for."""

    def __init__(self, paths: Sequence[Path], labels: IntArray) -> None:
        self.paths = paths
        self.labels = labels

    def image(self, index: int) -> Image.Image:
        """Decode the file, or raise an error that names it."""
        return decode(self.paths[index])

    def digest(self, index: int) -> bytes:
        """Hash of path, size and modification time: cheap, and changes when the file does."""
        path = self.paths[index]
        try:
            stat, place = path.stat(), path.resolve()
        except OSError as error:
            raise UnreadableImage(path, explain(error)) from error
        identity = f"{DECODING}|{place}|{stat.st_size}|{stat.st_mtime_ns}"
        return hashlib.sha256(os.fsencode(identity)).digest()[:DIGEST_BYTES]


class Subset:
    """Some images of a set, in an order of their own, under their labels or others."""

    def __init__(self, images: Images, ids: IntArray, labels: IntArray | None = None) -> None:
        self.images = images
        self.ids = ids
        self.labels = images.labels[ids] if labels is None else labels

    def image(self, index: int) -> Image.Image:
        """Decode image `index` of the subset."""
        return self.images.image(int(self.ids[index]))

    def digest(self, index: int) -> bytes:
        """Hash of image `index` of the subset."""
        return self.images.digest(int(self.ids[index]))


def file_path(images: Images, index: int) -> Path | None:
    """The file that an image is in, None if it is in none of its own."""
    if isinstance(images, Subset):
        return file_path(images.images, int(images.ids[index]))
    return images.paths[index] if isinstance(images, FileImages) else None


def content_digest(images: Images, index: int) -> bytes:
    """Hash of what an image holds, wherever it lies: a file's bytes, or else the pixels."""
    if isinstance(images, Subset):
        return content_digest(images.images, int(images.ids[index]))
    if not isinstance(images, FileImages):
        return images.digest(index)
    path = images.paths[index]
    try:
        with opened_file(path) as stream:
            return hashlib.file_digest(stream, "sha256").digest()[:DIGEST_BYTES]
    except OSError as error:
        raise UnreadableImage(path, explain(error)) from error


@dataclass(frozen=True)
class Dataset:
    """A dataset as loaded."""

    name: str
    class_names: tuple[str, ...]
    train: Images
    test: Images


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset as listed: one line for people, a loader, and the settings it is used with.

    `defaults` is laid under the user's settings (``protocol``, ``transform``,
    ``backbone``, ``training`` and ``method``).
    """

    summary: str
    load: Callable[[DataSettings, Reporter], Dataset]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.summary, str) or not callable(self.load):
            raise TypeError("a summary is a text, and load is a function")
        if not isinstance(self.defaults, Mapping):
            raise TypeError("defaults are a mapping of settings")


def position_in_class(labels: IntArray) -> IntArray:
    """For every image, how many images of its class come before it."""
    positions = np.empty_like(labels)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        positions[members] = np.arange(len(members))
    return positions
