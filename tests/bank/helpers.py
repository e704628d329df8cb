"""A small trunk, its images, banks opened as a run would, and plain passes to compare with."""

import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import ViTConfig, ViTModel

from goal.backbone.tokens import Tokens, TokenSource
from goal.backbone.trunk import BackboneSettings, Trunk, split
from goal.bank.bank import BankSettings, TokenBank
from goal.bank.shelf import inspect
from goal.common.progress import Reporter
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings, augmented, clean

TRANSFORM = TransformSettings(image_size=8, resize=24)
TOKENS, WIDTH = 5, 16
ROW_BYTES = {
    "float16": TOKENS * WIDTH * 2 + WIDTH * 4,
    "float32": (TOKENS + 1) * WIDTH * 4,
    "int8": TOKENS * (WIDTH + 4) + WIDTH * 4,
}
ROW = ROW_BYTES["float16"]
RECORD_BYTES = 20
CLEAN = "clean"


def make_trunk(seed: int = 0) -> Trunk:
    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ViTModel(config, add_pooling_layer=False)
    return split(model, BackboneSettings(), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)).trunk


def make_images(count: int) -> ArrayImages:
    pixels = np.random.default_rng(1).integers(0, 256, (count, 12, 14, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.zeros(count, dtype=np.int64))


def all_ids(images: ArrayImages) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(len(images.labels))


class Recorder(Reporter):
    """Keeps what is said, in order, together with what the trunk does."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.spoke = threading.Event()

    def say(self, text: str) -> None:
        self.events.append(("say", text))
        self.spoke.set()

    def warn(self, text: str) -> None:
        self.events.append(("warn", text))

    def of(self, kind: str) -> list[str]:
        return [text for event, text in self.events if event == kind]


@dataclass
class Opened:
    """Tokens, how many images the trunk was run on to get them, and what was said."""

    tokens: TokenSource
    computed: int
    reporter: Recorder


@cache
def shared_trunk() -> Trunk:
    return make_trunk()


def open_bank(
    folder: Path,
    images: ArrayImages,
    ids: Any = None,
    *,
    trunk: Trunk | None = None,
    transform: TransformSettings = TRANSFORM,
    augmented_views: bool = True,
    reporter: Recorder | None = None,
    **values: Any,
) -> Opened:
    """Open a bank as a new run would; batches of one make equality exact."""
    reporter, trunk = reporter or Recorder(), trunk or shared_trunk()
    chosen = BankSettings(**{"folder": str(folder), "views": 2, "batch_size": 1, **values})
    bank = TokenBank(trunk, transform, chosen, reporter)
    computed: list[int] = []

    def count(_: Any, arguments: tuple[Tensor]) -> None:
        computed.append(len(arguments[0]))
        reporter.events.append(("trunk", str(len(arguments[0]))))

    hook = trunk.register_forward_pre_hook(count)
    try:
        tokens = bank.open(images, all_ids(images) if ids is None else ids, augmented_views)
    finally:
        hook.remove()
    return Opened(tokens, sum(computed), reporter)


def crop_of(images: ArrayImages, index: int, view: int | str, view_seed: int = 0) -> Any:
    """The pixels of a view, as the bank documents them."""
    if view == CLEAN:
        return clean(images.image(index), TRANSFORM)
    digest = int.from_bytes(images.digest(index), "big")
    sequence = np.random.SeedSequence([view_seed, int(view), digest])
    return augmented(images.image(index), TRANSFORM, np.random.default_rng(sequence))


def one_pass(trunk: Trunk, crop: Any) -> Tokens:
    tokens: Tokens = trunk(torch.from_numpy(crop)[None])
    return tokens


@cache
def one_shared_pass(content: bytes) -> Tokens:
    return one_pass(shared_trunk(), np.frombuffer(content, dtype=np.uint8).reshape(3, 8, 8).copy())


def plain(
    images: ArrayImages, ids: Any, view: int | str = CLEAN, trunk: Trunk | None = None, **seed: int
) -> Tokens:
    """A pass of the trunk over the crops of the images, one by one."""
    crops = [crop_of(images, int(index), view, **seed) for index in ids]
    if trunk is not None:
        return Tokens.cat([one_pass(trunk, crop) for crop in crops])
    return Tokens.cat([one_shared_pass(crop.tobytes()) for crop in crops])


def everything(source: TokenSource) -> Tokens:
    return source.clean(torch.arange(len(source)))


def same(given: Tokens, expected: Tokens, tolerance: float = 0.0) -> bool:
    return torch.allclose(
        given.normalised.float(), expected.normalised.float(), rtol=0, atol=tolerance
    ) and torch.allclose(given.cls, expected.cls, rtol=0, atol=tolerance)


def agrees(opened: Opened, images: ArrayImages, ids: Any = None) -> bool:
    """Whether the clean view and, with one banked view, that view equal plain passes (float16)."""
    ids = all_ids(images) if ids is None else ids
    view, second = opened.tokens.pair(torch.arange(len(ids)), torch.Generator())
    cleaned = plain(images, ids)
    return (
        same(everything(opened.tokens), cleaned, 2e-3)
        and same(second, cleaned, 2e-3)
        and same(view, plain(images, ids, 0), 2e-3)
    )


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shelf_of(folder: Path, view: int | str) -> Path:
    [found] = [shelf for shelf in inspect(folder / "bank") if shelf.about["view"] == view]
    return found.folder
