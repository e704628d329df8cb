"""The token bank: the frozen trunk's tokens, computed once and kept on disk.

Every view (the clean one, and each augmented view) has a shelf of its own (`goal.bank.shelf`),
named by trunk and transform; rows are named by the hash of the image. So every run, seed, method
and subset shares what has been computed.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from rich.filesize import decimal

from goal.backbone.tokens import TokenSource
from goal.backbone.trunk import Trunk
from goal.bank.fill import Missing, fill
from goal.bank.readers import BankedTokens, FreshTokens
from goal.bank.shelf import Shelf, inspect, require_no_link
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.common.section import Section
from goal.data.decoding import UnreadableImage
from goal.data.images import Images
from goal.data.transforms import Pixels, TransformSettings, augmented, clean, describe, resized
from goal.distributed import first_goes_ahead, ranks, wait
from goal.storage.cache import cache_folder
from goal.storage.locks import waiting_for

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
    dtype: Literal["float16", "float32", "int8"] = "float16"
    view_seed: int = Field(default=0, ge=0)
    folder: str | None = None
    budget_gb: float | None = Field(default=None, gt=0)
    batch_size: int = Field(default=64, gt=0)


def bank_root(settings: BankSettings) -> Path:
    """Return the folder that holds all shelves."""
    return cache_folder(settings.folder) / "bank"


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
        self.trunk = trunk
        self._transform = transform
        self._reporter = reporter or Reporter()
        self.fingerprint = trunk.fingerprint()
        self._shape = trunk.token_shape(transform.image_size)
        self.folder = bank_root(settings) / self.fingerprint[:16]

    def open(
        self,
        images: Images,
        ids: IntArray,
        augmented_views: bool,
        skipped: dict[int, str] | None = None,
    ) -> TokenSource:
        """Return the tokens of ``images[ids]``, computing and storing those not yet in the bank.

        An image that cannot be read is an error, unless `skipped` is there to take it: then it is
        entered there (its id and the reason), and the tokens are those of the others, in order.
        """
        if self.settings.views == "fresh":
            return FreshTokens(images, ids, self.trunk, self._transform, self.settings.batch_size)
        views: list[int | str] = [CLEAN]
        if augmented_views:
            views += range(self.settings.views)
        require_no_link(self.folder)
        try:
            ids, digests = _identified(images, ids, skipped)
            with self._building():
                with first_goes_ahead():  # a new shelf is made once
                    shelves = [self._shelf(view) for view in views]
                rows = [shelf.find(digests, self._reporter) for shelf in shelves]
                if any((found < 0).any() for found in rows):
                    bad = self._build(images, ids, digests, shelves, rows, skipped is not None)
                    wait()
                    for index, digest in zip(ids.tolist(), digests, strict=True):
                        if skipped is not None and digest in bad:
                            skipped[index] = bad[digest]
                    digests = [digest for digest in digests if digest not in bad]
                    rows = [shelf.find(digests, self._reporter) for shelf in shelves]
                if any((found < 0).any() for found in rows):
                    raise GoalError(
                        f"Rows that were just written are not in {self.folder}. With several "
                        f"machines, bank.folder must be on a file system that all of them share."
                    )
                return BankedTokens([shelf.reader() for shelf in shelves], rows)
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
        """One run builds per trunk at a time, with all its ranks; others wait for what it makes."""
        with ExitStack() as held:
            if ranks().first:
                held.enter_context(waiting_for(self.folder, self._reporter, "the token bank"))
            wait()
            yield
            wait()

    def _build(
        self,
        images: Images,
        ids: IntArray,
        digests: list[bytes],
        shelves: list[Shelf],
        rows: list[IntArray],
        tolerant: bool,
    ) -> dict[bytes, str]:
        """Fill the shelves; return the images that cannot be read, if that is to be tolerated."""
        missing = np.stack([found < 0 for found in rows])
        wanted = _first_of_each(digests, np.flatnonzero(missing.any(axis=0)))
        row_bytes = shelves[0].row_bytes
        need = sum(int(absent[wanted].sum()) for absent in missing) * row_bytes
        if ranks().first:
            self._check_space(need, len(wanted), len(shelves))
        wait()
        mine = np.array_split(wanted, ranks().count)[ranks().rank].tolist()
        size = self.settings.batch_size
        chunk = max(1, min(16, _CHUNK_BYTES // row_bytes // len(shelves) // size)) * size
        views = [shelf.about["view"] for shelf in shelves]

        unreadable: dict[bytes, str] = {}

        def crops(position: int, wanted_views: list[int]) -> list[Pixels]:
            try:
                image = resized(images.image(int(ids[position])), self._transform)
            except UnreadableImage as error:
                if not tolerant:
                    raise
                unreadable[digests[position]] = error.reason
                return []
            if images.digest(int(ids[position])) != digests[position]:
                why = "it was replaced while it was being read"
                if not tolerant:
                    raise GoalError(f"Image {ids[position]} cannot be used: {why}. Run it again.")
                unreadable[digests[position]] = why
                return []
            return [self._crop(image, views[number], digests[position]) for number in wanted_views]

        work = Missing(mine, list(missing), digests)
        passes = fill(shelves, work, crops, self.trunk, chunk=chunk, batch_size=size)
        total = work.batches(chunk, size)
        for _ in self._reporter.track(passes, total, "Building the token bank"):
            pass
        return unreadable

    def _crop(self, image: Any, view: int | str, digest: bytes) -> Pixels:
        if view == CLEAN:
            return clean(image, self._transform)
        entropy = [self.settings.view_seed, int(view), int.from_bytes(digest)]
        rng = np.random.default_rng(np.random.SeedSequence(entropy))
        return augmented(image, self._transform, rng)

    def _check_space(self, need: int, images: int, views: int) -> None:
        free = shutil.disk_usage(self.folder).free
        self._reporter.say(
            f"Token bank: {images:,} images x {views} views need {decimal(need)} in "
            f"{self.folder} ({decimal(free)} free)."
        )
        remedy = (
            "Use fewer views (bank.views), 'fresh' views, another disk (bank.folder or "
            "GOAL_CACHE), or `goal bank clear`."
        )
        if need + _SPARE_BYTES > free:
            raise GoalError(
                f"The token bank needs {decimal(need)} but {self.folder} has only "
                f"{decimal(free)} free. {remedy}"
            )
        budget = self.settings.budget_gb
        used = sum(entry.size for entry in inspect(self.folder.parent))
        if budget is not None and used + need > budget * 1e9:
            raise GoalError(
                f"The token bank would grow from {decimal(used)} to "
                f"{decimal(used + need)}, over its budget of {budget} GB. {remedy}"
            )


def _identified(
    images: Images, ids: IntArray, skipped: dict[int, str] | None
) -> tuple[IntArray, list[bytes]]:
    """Digests of the images; ones that have gone are entered in `skipped`, if it is there."""
    kept, digests = [], []
    for index in np.asarray(ids).tolist():
        try:
            digests.append(images.digest(index))
            kept.append(index)
        except UnreadableImage as error:
            if skipped is None:
                raise
            skipped[index] = error.reason
    return np.array(kept, dtype=np.int64), digests


def _first_of_each(digests: list[bytes], positions: IntArray) -> list[int]:
    """Drop positions whose image came up before: equal images share a row."""
    return list({digests[position]: int(position) for position in positions[::-1]}.values())[::-1]
