"""Point 6: `goal fit` on photographs, against one plain pass of the same backbone."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image, ImageFilter

from benchmarks.speed.subjects import VIT_S, Size, random_model
from goal.backbone.features import Embedder, load_embedder
from goal.common.arrays import Pixels
from goal.common.progress import Reporter
from goal.data.decoding import decode
from goal.data.transforms import prepared
from goal.features.embed import BATCH
from goal.features.labelled import open_labelled
from goal.models.model import Model
from goal.models.settings import model_settings

_CLASSES = 8
_PREPROCESSOR = """{"do_resize": true, "size": {"shortest_edge": %d}, "do_center_crop": true,
"crop_size": {"height": %d, "width": %d}, "image_mean": [0.485, 0.456, 0.406],
"image_std": [0.229, 0.224, 0.225]}"""


@dataclass(frozen=True)
class Passes:
    """Seconds per image and the same of processors, by way; and bytes per image on disk."""

    images: int
    width: int
    plain: float
    fit: float
    ratio: float
    ratio_of_processors: float
    store: float
    model: float


def photographs(folder: Path, count: int, root: Path | None) -> list[Path]:
    """Copy so many photographs of CUB into class folders, or make some of that size."""
    places = []
    sources = _of_cub(root, count) if root else []
    rng = np.random.default_rng(0)
    for number in range(count):
        label = number % _CLASSES
        path = folder / f"class-{label}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if sources:
            shutil.copyfile(sources[number], path)
        else:
            noise = Image.fromarray(rng.integers(0, 256, (375, 500, 3), np.uint8))
            noise.filter(ImageFilter.GaussianBlur(2)).save(path, quality=92)
        places.append(path)
    return places


def _of_cub(root: Path, count: int) -> list[Path]:
    """Photographs of the first classes, in turn."""
    folders = sorted((root / "CUB_200_2011" / "images").iterdir())[:_CLASSES]
    listed = [sorted(folder.glob("*.jpg")) for folder in folders]
    return [listed[number % _CLASSES][number // _CLASSES] for number in range(count)]


def random_backbone(folder: Path, size: Size) -> str:
    """Write a transformers folder of a network with random weights."""
    random_model(size).save_pretrained(folder)
    text = _PREPROCESSOR % (size.image * 256 // 224, size.image, size.image)
    (folder / "preprocessor_config.json").write_text(text)
    return str(folder)


def plain_pass(embedder: Embedder, crops: Pixels) -> None:
    """Run the network on crops that are ready, and keep nothing."""
    for start in range(0, len(crops), BATCH):
        embedder(torch.from_numpy(crops[start : start + BATCH]))


def measure(
    count: int, repeats: int, root: Path | None, backbone: str | None, size: Size = VIT_S
) -> Passes:
    """Both ways in turn, after a warm-up; a fit begins with files and ends with a model folder."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        paths = photographs(folder / "labelled", count, root)
        name = backbone or random_backbone(folder / "backbone", size)
        embedder = load_embedder(name)
        crops = np.stack([prepared(decode(path), embedder.preprocessing) for path in paths])
        settings = model_settings(backbone=name)

        def fit(number: int) -> None:
            given = open_labelled(folder / "labelled", None, Reporter())
            Model(folder / f"m{number}").fit(given.images, given.numbers, given.classes, settings)

        plain_pass(embedder, crops[:BATCH])
        rounds = [
            (_spent(lambda: plain_pass(embedder, crops)), _spent(lambda at=at: fit(at)))  # type: ignore[misc]
            for at in range(repeats)
        ]
        features = _size(folder / "m0" / "features")
        return Passes(
            images=count,
            width=embedder.width,
            plain=median(plain[0] for plain, _ in rounds) / count,
            fit=median(ours[0] for _, ours in rounds) / count,
            ratio=median(ours[0] / plain[0] for plain, ours in rounds),
            ratio_of_processors=median(ours[1] / plain[1] for plain, ours in rounds),
            store=features / count,
            model=_size(folder / "m0") / count,
        )


def _spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of processors of this process."""
    began, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    used = after.user + after.system - before.user - before.system
    return time.perf_counter() - began, used


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table(found: Passes) -> list[str]:
    """What was found, as Markdown."""
    most = 2 * found.width + 1024
    return [
        "| images | plain pass, ms per image | `goal fit` | **ratio** | ratio of processor time | "
        "feature store, bytes per image | whole model folder |",
        "|---|---:|---:|---:|---:|---:|---:|",
        f"| {found.images} | {1e3 * found.plain:.1f} | {1e3 * found.fit:.1f} | "
        f"**{found.ratio:.2f}x** | {found.ratio_of_processors:.2f}x | {found.store:,.0f} | "
        f"{found.model:,.0f} |",
        "",
        f"Goals: at most 1.15x, and at most 2 bytes x width + 1 KB = {most:,} bytes.",
    ]
