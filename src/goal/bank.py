"""The token bank: the frozen trunk's tokens, computed once and kept on disk.

Every view (the clean one, and each augmented view) has a shelf of its own (`goal.shelf`), named
by trunk and transform; rows are named by the hash of the image. So every run, seed, method and
subset shares what has been computed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout
from pydantic import Field
from torch import Tensor

from goal.backbone import Trunk
from goal.data.base import Images, IntArray
from goal.data.transforms import TransformSettings, augmented, clean, describe
from goal.errors import GoalError
from goal.files import human_size
from goal.progress import Reporter
from goal.schema import Section
from goal.shelf import Shelf, inspect
from goal.tokens import Tokens, TokenSource

CLEAN = "clean"
_CHUNK_BYTES = 64_000_000
_SPARE_BYTES = 200_000_000


class BankSettings(Section):
    """How views are made and where their tokens are kept.

    `views` is the number of banked augmented views per image (the clean one comes on top), or
    ``fresh`` to run the trunk on new crops in every step. `folder` defaults to ``$GOAL_CACHE`` or
    ``~/.cache/goal``; `budget_gb` refuses to let the bank grow beyond that size.
    """

    views: Annotated[int, Field(ge=1)] | Literal["fresh"] = 4
    dtype: Literal["float16", "float32"] = "float16"
    view_seed: int = Field(default=0, ge=0)
    folder: str | None = None
    budget_gb: float | None = Field(default=None, gt=0)
    batch_size: int = Field(default=64, gt=0)


def cache_folder(settings: BankSettings) -> Path:
    """Return the folder for everything that can be computed again."""
    cache = settings.folder or os.environ.get("GOAL_CACHE") or "~/.cache/goal"
    return Path(cache).expanduser()


def bank_root(settings: BankSettings) -> Path:
    """Return the folder that holds all shelves."""
    return cache_folder(settings) / "bank"


class TokenBank:
    """All shelves of one trunk and transform; computes what is missing."""

    def __init__(
        self,
        trunk: Trunk,
        transform: TransformSettings,
        settings: BankSettings,
        reporter: Reporter | None = None,
    ) -> None:
        self.settings = settings
        self._trunk = trunk
        self._transform = transform
        self._reporter = reporter or Reporter()
        self.fingerprint = trunk.fingerprint()
        self._shape = trunk.token_shape(transform.image_size)
        self.folder = bank_root(settings) / self.fingerprint[:16]

    def open(self, images: Images, ids: IntArray, augmented_views: bool) -> TokenSource:
        """Return the tokens of ``images[ids]``, computing and storing those not yet in the bank."""
        if self.settings.views == "fresh":
            return FreshTokens(images, ids, self._trunk, self._transform, self.settings.batch_size)
        views: list[int | str] = [CLEAN]
        if augmented_views:
            views += range(self.settings.views)
        try:
            digests = [images.digest(int(index)) for index in ids]
            with self._building():
                shelves = [self._shelf(view) for view in views]
                rows = [shelf.find(digests, self._reporter) for shelf in shelves]
                if any((found < 0).any() for found in rows):
                    self._build(images, ids, digests, shelves, rows)
                    rows = [shelf.find(digests, self._reporter) for shelf in shelves]
                assert all((found >= 0).all() for found in rows)
                return BankedTokens([shelf.data() for shelf in shelves], rows)
        except OSError as error:
            raise GoalError(
                f"Cannot use the token bank in {self.folder}: {error}. "
                f"Choose another place by bank.folder or GOAL_CACHE."
            ) from error

    def _shelf(self, view: int | str) -> Shelf:
        tokens, width = self._shape
        about = {
            "trunk": self.fingerprint,
            "transform": describe(self._transform),
            "view": view,
            "view_seed": None if view == CLEAN else self.settings.view_seed,
            "dtype": self.settings.dtype,
            "tokens": tokens,
            "width": width,
        }
        return Shelf(self.folder, about, self._reporter)

    @contextmanager
    def _building(self) -> Iterator[None]:
        """One builder per trunk at a time; others wait for what it makes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._reporter.say("Another process is writing to the token bank; waiting for it.")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _build(
        self,
        images: Images,
        ids: IntArray,
        digests: list[bytes],
        shelves: list[Shelf],
        rows: list[IntArray],
    ) -> None:
        missing = np.stack([found < 0 for found in rows])
        wanted = _first_of_each(digests, np.flatnonzero(missing.any(axis=0)))
        row_bytes = shelves[0].row_bytes
        need = sum(int(absent[wanted].sum()) for absent in missing) * row_bytes
        self._check_space(need, len(wanted), len(shelves))
        batches = _CHUNK_BYTES // row_bytes // len(shelves) // self.settings.batch_size
        chunk = max(1, min(16, batches)) * self.settings.batch_size
        parts = [wanted[start : start + chunk] for start in range(0, len(wanted), chunk)]
        for part in self._reporter.track(parts, len(parts), "Building the token bank"):
            decoded = [images.image(int(ids[position])) for position in part]
            for shelf, absent in zip(shelves, missing, strict=True):
                chosen = [
                    (self._crop(image, shelf.about["view"], digests[position]), digests[position])
                    for image, position in zip(decoded, part, strict=True)
                    if absent[position]
                ]
                if chosen:
                    pixels = np.stack([crop for crop, _ in chosen])
                    tokens = run_trunk(self._trunk, pixels, self.settings.batch_size)
                    shelf.append(tokens, [digest for _, digest in chosen])

    def _crop(self, image: Any, view: int | str, digest: bytes) -> npt.NDArray[np.uint8]:
        if view == CLEAN:
            return clean(image, self._transform)
        entropy = [self.settings.view_seed, int(view), int.from_bytes(digest)]
        rng = np.random.default_rng(np.random.SeedSequence(entropy))
        return augmented(image, self._transform, rng)

    def _check_space(self, need: int, images: int, views: int) -> None:
        free = shutil.disk_usage(self.folder).free
        self._reporter.say(
            f"Token bank: {images:,} images x {views} views need {human_size(need)} in "
            f"{self.folder} ({human_size(free)} free)."
        )
        remedy = (
            "Use fewer views (bank.views), 'fresh' views, another disk (bank.folder or "
            "GOAL_CACHE), or `goal bank clear`."
        )
        if need + _SPARE_BYTES > free:
            raise GoalError(
                f"The token bank needs {human_size(need)} but {self.folder} has only "
                f"{human_size(free)} free. {remedy}"
            )
        budget = self.settings.budget_gb
        used = sum(entry.size for entry in inspect(self.folder.parent))
        if budget is not None and used + need > budget * 1e9:
            raise GoalError(
                f"The token bank would grow from {human_size(used)} to "
                f"{human_size(used + need)}, over its budget of {budget} GB. {remedy}"
            )


def _first_of_each(digests: list[bytes], positions: IntArray) -> list[int]:
    """Drop positions whose image came up before: equal images share a row."""
    return list({digests[position]: int(position) for position in positions[::-1]}.values())[::-1]


def run_trunk(trunk: Trunk, pixels: npt.NDArray[np.uint8], batch_size: int) -> Tokens:
    """Run the trunk over uint8 crops (N, 3, S, S); the result is on the CPU.

    Every batch is filled up to `batch_size`: matrix products of other shapes round differently,
    and an image's tokens must not depend on what else was missing when they were computed.
    """
    short = -len(pixels) % batch_size
    padded = np.concatenate([pixels, np.zeros((short, *pixels.shape[1:]), np.uint8)])
    batches = torch.from_numpy(padded).split(batch_size)
    tokens = Tokens.cat([trunk(batch).to(torch.device("cpu")) for batch in batches])
    return Tokens(tokens.normalised[: len(pixels)], tokens.cls[: len(pixels)])


class BankedTokens:
    """Tokens read from shelves: the clean one first, then the augmented views."""

    def __init__(self, shelves: list[npt.NDArray[Any]], rows: list[IntArray]) -> None:
        self._shelves = shelves
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows[0])

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        return self._read(torch.zeros_like(positions), positions)

    def pair(self, positions: Tensor, rng: torch.Generator) -> tuple[Tokens, Tokens]:
        """Two different views of each image; with a single banked view, it and the clean one."""
        views = len(self._shelves) - 1
        if views < 1:
            raise ValueError("these tokens were opened without augmented views")
        if views == 1:
            return self._read(torch.ones_like(positions), positions), self.clean(positions)
        first = torch.randint(views, positions.shape, generator=rng)
        step = torch.randint(1, views, positions.shape, generator=rng)
        second = (first + step) % views
        return self._read(first + 1, positions), self._read(second + 1, positions)

    def _read(self, shelves: Tensor, positions: Tensor) -> Tokens:
        chosen, where = shelves.numpy(), positions.numpy()
        row = self._shelves[0].dtype
        normalised = np.empty((len(where), *row["normalised"].shape), dtype=np.float32)
        cls = np.empty((len(where), *row["cls"].shape), dtype=np.float32)
        for index in np.unique(chosen):
            mine = chosen == index
            rows = self._shelves[index][self._rows[index][where[mine]]]
            normalised[mine], cls[mine] = rows["normalised"], rows["cls"]
        return Tokens(torch.from_numpy(normalised), torch.from_numpy(cls))


class FreshTokens:
    """Tokens computed on the fly from new random crops: no disk, one trunk pass per view."""

    def __init__(
        self,
        images: Images,
        ids: IntArray,
        trunk: Trunk,
        transform: TransformSettings,
        batch_size: int,
    ) -> None:
        self._images = images
        self._ids = ids
        self._trunk = trunk
        self._transform = transform
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self._ids)

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        crops = [clean(image, self._transform) for image in self._decoded(positions)]
        return run_trunk(self._trunk, np.stack(crops), self._batch_size)

    def pair(self, positions: Tensor, rng: torch.Generator) -> tuple[Tokens, Tokens]:
        """Tokens of two new random crops of each image."""
        seed = int(torch.randint(2**62, (), generator=rng))
        crops_rng = np.random.default_rng(seed)
        decoded = self._decoded(positions)
        first, second = (
            np.stack([augmented(image, self._transform, crops_rng) for image in decoded])
            for _ in range(2)
        )
        return (
            run_trunk(self._trunk, first, self._batch_size),
            run_trunk(self._trunk, second, self._batch_size),
        )

    def _decoded(self, positions: Tensor) -> list[Any]:
        return [self._images.image(int(self._ids[position])) for position in positions]
