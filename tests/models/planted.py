"""Planted features in place of images: classes as clouds, and models that learn them at once."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.features.labelled import open_given, open_labelled
from goal.models.model import Model
from goal.models.settings import model_settings

WIDTH = 16


def cloud(label: int, count: int, seed: int, spread: float = 0.08) -> npt.NDArray[np.float32]:
    """So many images of a class: each class has an axis of its own."""
    rng = np.random.default_rng([seed, label])
    points = spread * rng.normal(size=(count, WIDTH))
    points[:, label] += 1
    return points.astype(np.float32)


def labelled_model(
    folder: Path, classes: int = 4, count: int = 60, method: str = "goal-plus"
) -> Model:
    """A model of some classes."""
    features = np.concatenate([cloud(label, count, seed=0) for label in range(classes)])
    names = np.repeat([f"class-{label}" for label in range(classes)], count)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "labelled.npz", features=features, labels=names)
    given = open_labelled(folder / "labelled.npz", None, Reporter())
    model = Model(folder / "model")
    model.fit(given.images, given.numbers, given.classes, model_settings())
    return model


def week(path: Path, counts: dict[int, int], seed: int) -> ImageSet:
    """Unlabelled images: so many of each class."""
    features = np.concatenate([cloud(label, count, seed) for label, count in counts.items()])
    np.savez(path, features=features)
    return open_given([str(path)], Reporter())
