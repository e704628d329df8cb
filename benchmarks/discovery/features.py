"""The frozen feature of every image that an experiment uses, computed once and kept in chunks.

What was computed stays, so an interrupted pass goes on. Features are those that a frozen method
has in `goal run`: what the backbone gives before anything is trained.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from goal.backbone.load import load_backbone
from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Backbone
from goal.bank.necks import fit_neck
from goal.bank.readers import run_trunk
from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import Dataset, Images
from goal.data.sets import load_dataset
from goal.data.transforms import clean
from goal.features.given import FeatureImages
from goal.features.origin import GIVEN, Origin
from goal.protocol.stages import build_stages
from goal.settings.settings import Settings

CHUNK = 512


def featured(
    settings: Settings, stages: Iterable[int], folder: Path, reporter: Reporter
) -> Dataset:
    """Return the settings' dataset with features in the place of images.

    Images that no run of so many stages uses have no feature: not a number.

    Args:
        settings: Dataset, protocol, transform and backbone.
        stages: Numbers of stages that will be run.
        folder: Where features are kept.
        reporter: Told how far the work has come.
    """
    dataset = load_dataset(settings.data, reporter)
    backbone: list[Backbone] = []
    train, test = _needed(dataset, settings, stages)
    parts = []
    for images, ids, name in ((dataset.train, train, "train"), (dataset.test, test, "test")):
        whole: npt.NDArray[np.float32] | None = None
        chunks = np.array_split(ids, -(-len(ids) // CHUNK))
        for number, chunk in enumerate(reporter.track(chunks, len(chunks), f"Features ({name})")):
            path = folder / f"{name}-{number:03d}.npz"
            if (found := _kept(path, chunk)) is None:
                backbone = backbone or [_backbone(dataset, settings, reporter)]
                found = _computed(backbone[0], images, chunk, settings)
                folder.mkdir(parents=True, exist_ok=True)
                np.savez(path, ids=chunk, features=found)
            if whole is None:
                whole = np.full((len(images.labels), found.shape[1]), np.nan, np.float32)
            whole[chunk] = found
        assert whole is not None
        parts.append(_as_images(whole, images.labels))
    return Dataset(dataset.name, dataset.class_names, *parts)


def _needed(
    dataset: Dataset, settings: Settings, stages: Iterable[int]
) -> tuple[IntArray, IntArray]:
    """Positions of the training and test images that runs of so many stages use."""
    labels = (dataset.train.labels, dataset.test.labels)
    cuts = [
        stage
        for count in stages
        for stage in build_stages(
            *labels,
            len(dataset.class_names),
            settings.protocol.model_copy(update={"stages": count}),
        )
    ]
    train = np.unique(np.concatenate([stage.train_ids for stage in cuts]))
    return train, np.unique(np.concatenate([stage.test_ids for stage in cuts]))


def _kept(path: Path, ids: IntArray) -> npt.NDArray[np.float32] | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        same = np.array_equal(file["ids"], ids)
        return np.asarray(file["features"], np.float32) if same else None


def _backbone(dataset: Dataset, settings: Settings, reporter: Reporter) -> Backbone:
    backbone, s = load_backbone(settings.backbone, settings.data.download), settings
    if backbone.trunk.neck is not None:
        labels = (dataset.train.labels, dataset.test.labels)
        first = build_stages(*labels, len(dataset.class_names), s.protocol)[0]
        fit_neck(backbone.trunk, dataset.train, first.train_ids, s.transform, s.bank, reporter)
    return backbone


@torch.no_grad()
def _computed(
    backbone: Backbone, images: Images, ids: IntArray, settings: Settings
) -> npt.NDArray[np.float32]:
    found = []
    for part in np.array_split(ids, -(-len(ids) // settings.bank.batch_size)):
        crops = np.stack([clean(images.image(int(index)), settings.transform) for index in part])
        tokens = run_trunk(backbone.trunk, crops, settings.bank.batch_size)
        rounded = Tokens(tokens.normalised.half().float(), tokens.cls)  # as token banks do
        found.append(backbone.tail(rounded).numpy())
    return np.concatenate(found)


def _as_images(features_ND: npt.NDArray[np.float32], labels_N: IntArray) -> FeatureImages:
    count, width = features_ND.shape
    origin = Origin(backbone=GIVEN, fingerprint=f"given-{width}", reads=GIVEN, width=width)
    images = FeatureImages(features_ND, [b""] * count, origin)
    images.labels = labels_N
    return images
