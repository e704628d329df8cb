"""What is measured: random models of the usual sizes, methods in mid-experiment, small banks."""

import copy
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ViTConfig, ViTModel

from goal.backbone.load import IMAGENET_MEAN, IMAGENET_STD
from goal.backbone.tail import normalise
from goal.backbone.tokens import Tokens, TokenSource
from goal.backbone.trunk import Backbone, BackboneSettings, Trunk, split
from goal.bank.bank import BankSettings, TokenBank
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings
from goal.methods.base import Batch, Method
from goal.methods.goal import Goal
from goal.methods.parts.parametric import Parametric
from goal.methods.registry import METHODS
from goal.numerics.simplex import UNOWNED
from goal.settings.recipes import read_recipe

KNOWN, NEW = 50, 10  # CIFAR-100's first incremental stage


@dataclass(frozen=True)
class Size:
    """A vision transformer's size."""

    name: str
    width: int
    heads: int
    depth: int = 12
    image: int = 224
    patch: int = 16

    @property
    def tokens(self) -> int:
        """Tokens per image, CLS included."""
        return 1 + (self.image // self.patch) ** 2


VIT_S = Size("ViT-S/16", 384, 6)
VIT_B = Size("ViT-B/16", 768, 12)
TINY = Size("ViT-tiny", 32, 2, depth=2, image=32)


def random_model(size: Size) -> Any:
    """Build a transformers ViT with seeded random weights."""
    config = ViTConfig(
        hidden_size=size.width,
        num_hidden_layers=size.depth,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        image_size=size.image,
        patch_size=size.patch,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ViTModel(config, add_pooling_layer=False).eval()


def cut(model: Any) -> Backbone:
    """Cut a copy of the model into trunk and tail."""
    return split(copy.deepcopy(model), BackboneSettings(), IMAGENET_MEAN, IMAGENET_STD)


class FullModel(nn.Module):
    """The whole model in the tail's place, as peers run it; only its last block trains.

    Its "tokens" are pixels. Frozen blocks keep nothing for a backward pass, as in the peers' code.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.model.layers[-1].requires_grad_(True)

    def forward(self, *parts: Tokens) -> Tensor:
        """Map pixels to CLS features."""
        pixels = torch.cat([part.normalised for part in parts])
        return torch.as_tensor(self.model(pixel_values=pixels).last_hidden_state[:, 0])


def method_in_stage(
    name: str, backbone: Backbone, images: int, known: int = KNOWN, new: int = NEW
) -> Parametric:
    """Build a method with CIFAR-100's recipe as it is in the middle of a stage.

    Without known classes it is stage 0. For `goal`, half of the images are in the confident set.
    """
    spec = METHODS[name]
    given = read_recipe(f"cifar100/{name}")["method"]
    settings = spec.method.Settings.parse({**spec.preset, **given})
    rng = torch.Generator().manual_seed(0)
    method: Method = spec.method.build(settings, copy.deepcopy(backbone.tail), known + new, rng)
    assert isinstance(method, Parametric)
    width = backbone.tail.width
    unit = F.normalize(torch.randn(known + new, width, generator=rng), dim=1)
    method.classifier.grow(unit)
    method.prototypes, method.radius = unit[:known], torch.tensor(width**-0.5 / 2)
    if isinstance(method, Goal):
        classes = torch.arange(known + new)
        method.ledger.claim(classes, classes)
        method.slots = torch.where(torch.arange(images) % 2 == 0, classes[-1], UNOWNED)
    return method


def as_peers_run_it(method: Parametric, model: Any) -> Parametric:
    """Put the whole model in place of tail and teacher."""
    plain = copy.deepcopy(method)
    plain.tail = FullModel(copy.deepcopy(model))  # type: ignore[assignment]
    plain.teacher = FullModel(copy.deepcopy(model)).requires_grad_(False)  # type: ignore[assignment]
    return plain


def pixel_batch(size: Size, count: int) -> Batch:
    """Two views of random pixels, as the full model takes them."""
    rng = torch.Generator().manual_seed(1)
    shape = (count, 3, size.image, size.image)
    views = [Tokens(torch.randn(shape, generator=rng), torch.empty(count, 0)) for _ in range(2)]
    return Batch(views[0], views[1], torch.arange(count))


# -- banks -------------------------------------------------------------------------------------


class NoiseTrunk(Trunk):
    """Stands in for a trunk where only the tokens' shape matters: seeded noise per image."""

    def __init__(self, size: Size) -> None:
        super().__init__(nn.Identity(), lambda model, pixels: pixels, 1e-6, (0.0,) * 3, (1.0,) * 3)
        self.size = size

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tokens:
        """Noise that depends on the first pixels."""
        seed = int(pixels[:, :, 0, 0].long().sum())
        rng = torch.Generator().manual_seed(seed)
        shape = (len(pixels), self.size.tokens, self.size.width)
        return normalise(torch.randn(shape, generator=rng), 1e-6)

    def fingerprint(self) -> str:
        """Name of the shape."""
        return hashlib.sha256(f"noise {self.size}".encode()).hexdigest()[:32]


def random_images(count: int, side: int = 32) -> ArrayImages:
    """Random pixels of CIFAR's size."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.zeros(count, dtype=np.int64))


def noise_bank(size: Size, images: int, views: int, folder: Path) -> TokenSource:
    """Build a real bank of noise tokens and open it."""
    settings = BankSettings(views=views, folder=str(folder), batch_size=32)
    small = TransformSettings(image_size=8, resize=9)  # pixels are only a seed here
    bank = TokenBank(NoiseTrunk(size), small, settings)
    return bank.open(random_images(images, 9), np.arange(images), augmented_views=True)
