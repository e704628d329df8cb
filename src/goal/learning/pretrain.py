"""Self-supervised pretraining of a small ViT, for images nothing like ImageNet.

DINO-style self-distillation (Caron et al., 2021): a student must predict, from one random view,
what a slowly moving average of itself says of another view. Teacher assignments are balanced
over the batch by Sinkhorn-Knopp instead of centring, which needs no tuning on small sets. Only
images of the base classes are ever looked at.
"""

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from transformers import ViTConfig, ViTModel

from goal.backbone.load import quiet_transformers
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.progress import Reporter
from goal.common.section import Section
from goal.common.seeding import stream
from goal.data.images import Images
from goal.data.transforms import TransformSettings, clean
from goal.storage import checkpoint
from goal.storage.files import is_leftover, read_bytes, write_bytes, write_json
from goal.storage.manifest import MOST_BYTES

PIXEL_MEAN = PIXEL_STD = (0.5, 0.5, 0.5)


class PretrainSettings(Section):
    """Network, schedule and augmentation.

    `rotation` and `shear` are in radians, `scale` is the largest log of a stretch, `shift` and
    `warp` are parts of half the image's side; `contrast` is the largest log of a gain and gamma.
    """

    width: int = Field(default=64, gt=0)
    depth: int = Field(default=3, gt=1)
    heads: int = Field(default=4, gt=0)
    patch_size: int = Field(default=4, gt=0)
    prototypes: int = Field(default=64, gt=1)
    epochs: int = Field(default=300, gt=0)
    batch_size: int = Field(default=128, gt=1)
    lr: float = Field(default=2e-3, gt=0)
    weight_decay: float = Field(default=0.04, ge=0)
    warmup_steps: int = Field(default=100, gt=0)
    teacher_momentum: float = Field(default=0.98, gt=0, lt=1)
    teacher_temperature: float = Field(default=0.04, gt=0)
    student_temperature: float = Field(default=0.1, gt=0)
    rotation: float = 0.1
    scale: float = 0.1
    shear: float = 0.1
    shift: float = 0.1
    warp: float = 0.05
    contrast: float = 0.3
    noise: float = 0.05
    flip: bool = False
    seed: int = 0


class _Network(nn.Module):
    """A ViT with DINO's projection head: batch-normalised MLP and unit-length prototypes."""

    def __init__(self, settings: PretrainSettings, image_size: int) -> None:
        super().__init__()
        width = settings.width
        config = ViTConfig(
            hidden_size=width,
            num_hidden_layers=settings.depth,
            num_attention_heads=settings.heads,
            intermediate_size=2 * width,
            image_size=image_size,
            patch_size=settings.patch_size,
        )
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Linear(width, 4 * width),
            nn.BatchNorm1d(4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.prototypes = nn.Linear(width, settings.prototypes, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Cosines with the prototypes, (B, K)."""
        cls = self.vit(pixel_values=pixels).last_hidden_state[:, 0]
        unit = F.normalize(self.head(cls), dim=1)
        return unit @ F.normalize(self.prototypes.weight, dim=1).T


def pretrain(
    images: Images,
    ids: IntArray,
    transform: TransformSettings,
    settings: PretrainSettings,
    folder: Path,
    reporter: Reporter | None = None,
) -> None:
    """Pretrain on ``images[ids]`` and write a transformers folder; goes on where it stopped.

    Args:
        images: A dataset's training images.
        ids: Those of the base classes.
        transform: Size of the input.
        settings: Network, schedule and augmentation.
        folder: Where to write ``config.json``, ``model.safetensors`` and the recipe.
        reporter: Told of progress.
    """
    if len(ids) < 2:
        raise GoalError(f"Pretraining needs at least 2 images; there are {len(ids)}.")
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "pretraining.pt"
    _require_own(folder, state)
    work = _Pretraining(images, ids, transform, settings)
    if state.exists():
        work.load_state_dict(checkpoint.load(state))
    epochs = range(work.epoch, settings.epochs)
    for epoch in (reporter or Reporter()).track(epochs, len(epochs), "Pretraining"):
        loss = work.train_epoch(epoch)
        (reporter or Reporter()).note("Pretraining", f"loss {loss:.3f}")
        if (epoch + 1) % 20 == 0:
            checkpoint.save(state, work.state_dict())
    with quiet_transformers(), TemporaryDirectory() as place:
        work.teacher.vit.save_pretrained(place)
        for path in sorted(Path(place).iterdir()):
            write_bytes(folder / path.name, read_bytes(path, MOST_BYTES))
    write_json(
        folder / "preprocessor_config.json", {"image_mean": PIXEL_MEAN, "image_std": PIXEL_STD}
    )
    recipe = {"images": len(ids), "transform": transform.model_dump()}
    write_json(folder / "pretraining.json", recipe | {"settings": settings.model_dump()})
    state.unlink(missing_ok=True)


def _require_own(folder: Path, state: Path) -> None:
    """Raise an error if a folder holds what is not an unfinished pretraining."""
    names = sorted(path.name for path in folder.iterdir() if not is_leftover(path.name))
    if names and state.name not in names:
        raise GoalError(
            f"{file_name(folder)} is not empty (there is {visible(names[0])}) and holds no "
            "unfinished pretraining. Choose another --out."
        )


class _Pretraining:
    """Student, teacher, optimiser and generator: everything that a checkpoint holds."""

    def __init__(
        self,
        images: Images,
        ids: IntArray,
        transform: TransformSettings,
        settings: PretrainSettings,
    ) -> None:
        self.images, self.ids = images, ids
        self.transform, self.settings = transform, settings
        self.rng = stream(settings.seed, "pretrain")
        self.epoch = 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)  # transformers initialises from the global generator
            self.student = _Network(settings, transform.image_size)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.optimiser = torch.optim.AdamW(
            self.student.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.per_epoch = max(1, len(ids) // settings.batch_size)

    def train_epoch(self, epoch: int) -> float:
        """Make one pass over the images; return the mean loss."""
        s = self.settings
        losses = []
        for number, pixels in enumerate(self._batches()):
            progress = (epoch * self.per_epoch + number) / (s.epochs * self.per_epoch)
            fading = (1 + math.cos(math.pi * progress)) / 2
            warm = min(1.0, (epoch * self.per_epoch + number + 1) / s.warmup_steps)
            for group in self.optimiser.param_groups:
                group["lr"] = s.lr * warm * fading
            views = [random_views(pixels, s, self.rng) for _ in range(2)]
            loss = self._loss(torch.cat(views))
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.student.parameters(), 3.0)
            self.optimiser.step()
            self._move_teacher(1 - (1 - s.teacher_momentum) * fading)
            losses.append(float(loss.detach()))
        self.epoch = epoch + 1
        return sum(losses) / len(losses)

    def _batches(self) -> Iterator[Tensor]:
        order = torch.randperm(len(self.ids), generator=self.rng)
        size = min(self.settings.batch_size, len(order))
        for positions in order[: self.per_epoch * size].split(size):
            crops = [
                clean(self.images.image(int(self.ids[position])), self.transform)
                for position in positions
            ]
            yield torch.from_numpy(np.stack(crops)).float() / 255

    def _loss(self, views: Tensor) -> Tensor:
        """Cross-entropy of each view's prediction towards the teacher's view of the other."""
        s = self.settings
        with torch.no_grad():
            target = sinkhorn(self.teacher(views) / s.teacher_temperature)
        swapped = target.roll(len(views) // 2, dims=0)
        predicted = (self.student(views) / s.student_temperature).log_softmax(dim=1)
        loss: Tensor = -(swapped * predicted).sum(dim=1).mean()
        return loss

    @torch.no_grad()
    def _move_teacher(self, momentum: float) -> None:
        pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast, 1 - momentum)

    def state_dict(self) -> dict[str, Any]:
        """Everything the next epoch depends on."""
        return {
            "epoch": self.epoch,
            "settings": json.dumps(self.settings.model_dump(), sort_keys=True),
            "student": self.student.state_dict(),
            "teacher": self.teacher.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state of the same settings."""
        if state["settings"] != json.dumps(self.settings.model_dump(), sort_keys=True):
            raise GoalError(
                "The folder holds a pretraining with other settings. Choose another --out."
            )
        self.epoch = state["epoch"]
        self.student.load_state_dict(state["student"])
        self.teacher.load_state_dict(state["teacher"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.set_state(state["rng"])


def sinkhorn(logits_BK: Tensor, rounds: int = 3) -> Tensor:
    """Turn logits into assignments (rows sum to 1) that use all prototypes equally."""
    share = (logits_BK - logits_BK.max()).exp()
    for _ in range(rounds):
        share = share / share.sum(dim=0, keepdim=True)
        share = share / share.sum(dim=1, keepdim=True)
    return share


def random_views(pixels: Tensor, settings: PretrainSettings, rng: torch.Generator) -> Tensor:
    """Warp, shade and disturb images in 0..1, (B, 3, S, S); returned normalised for the network."""
    s, count = settings, len(pixels)

    def jitter(reach: float) -> Tensor:
        return (2 * torch.rand(count, generator=rng) - 1) * reach

    angle, shear, wide, high = jitter(s.rotation), jitter(s.shear), jitter(s.scale), jitter(s.scale)
    if s.flip:
        mirror = torch.where(torch.rand(count, generator=rng) < 0.5, -1.0, 1.0)
    else:
        mirror = torch.ones(count)
    across = [mirror * angle.cos() * wide.exp(), shear - angle.sin() * high.exp(), jitter(s.shift)]
    down = [mirror * angle.sin() * wide.exp(), angle.cos() * high.exp(), jitter(s.shift)]
    matrix = torch.stack([torch.stack(across, dim=1), torch.stack(down, dim=1)], dim=1)
    grid = F.affine_grid(matrix, list(pixels.shape), align_corners=False)
    bumps = torch.randn(count, 2, 4, 4, generator=rng) * s.warp
    smooth = F.interpolate(bumps, size=pixels.shape[2:], mode="bicubic", align_corners=False)
    warped = F.grid_sample(pixels, grid + smooth.permute(0, 2, 3, 1), align_corners=False)
    gain, gamma = jitter(s.contrast).exp(), jitter(s.contrast).exp()
    shaded = (warped * gain.view(-1, 1, 1, 1)).clamp(0, 1) ** gamma.view(-1, 1, 1, 1)
    noisy = shaded + s.noise * torch.randn(shaded.shape, generator=rng)
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (PIXEL_MEAN, PIXEL_STD))
    return (noisy - mean) / std
