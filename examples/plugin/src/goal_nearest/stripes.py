"""Stripes: one class per direction, noise on top, the same images every time."""

import numpy as np

from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import ArrayImages, Dataset, DataSettings

CLASSES = 6
SIDE = 16


def load(settings: DataSettings, reporter: Reporter) -> Dataset:
    """Draw the images."""
    names = tuple(f"{180 * label // CLASSES} degrees" for label in range(CLASSES))
    return Dataset("stripes", names, train=_draw(30, seed=0), test=_draw(10, seed=1))


def _draw(per_class: int, seed: int) -> ArrayImages:
    rng = np.random.default_rng(seed)
    labels: IntArray = np.repeat(np.arange(CLASSES), per_class).astype(np.int64)
    angles = (np.pi * labels / CLASSES)[:, None, None]
    phases = rng.uniform(0, 2 * np.pi, (len(labels), 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE]
    waves = np.sin(1.2 * (x * np.cos(angles) + y * np.sin(angles)) + phases)
    grey = 128 + 80 * waves + rng.normal(0, 15, waves.shape)
    pixels = np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=-1)
    return ArrayImages(pixels, labels)
