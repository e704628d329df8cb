"""What half and quarter precision in the bank do to the feature."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.speed.building import transform_of
from benchmarks.speed.subjects import Size, cut, random_images, random_model
from goal.bank.bank import BankSettings, TokenBank


@torch.no_grad()
def lowest_cosines(size: Size, images: int, batch: int) -> dict[str, float]:
    """Lowest cosine, over images, of the feature with the one from a float32 bank."""
    backbone = cut(random_model(size))
    features = {}
    with TemporaryDirectory() as folder:
        for dtype in get_args(BankSettings.model_fields["dtype"].annotation):
            settings = BankSettings.parse(
                {"views": 1, "dtype": dtype, "folder": str(Path(folder)), "batch_size": batch}
            )
            bank = TokenBank(backbone.trunk, transform_of(size), settings)
            source = bank.open(random_images(images), np.arange(images), augmented_views=False)
            features[dtype] = F.normalize(backbone.tail(source.clean(torch.arange(images))), dim=1)
    exact = features.pop("float32")
    return {
        dtype: float((found.double() * exact.double()).sum(dim=1).min())
        for dtype, found in features.items()
    }


def table(cosines: dict[str, float]) -> list[str]:
    """One minus the cosine as Markdown."""
    lines = ["| bank | 1 - lowest cosine with float32 |", "|---|---:|"]
    return lines + [f"| {dtype} | {max(0.0, 1 - value):.1e} |" for dtype, value in cosines.items()]
