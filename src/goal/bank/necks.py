"""Necks fitted on stage 0, kept beside the token bank so that runs share them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from goal.backbone.trunk import Trunk
from goal.bank.bank import BankSettings
from goal.common.arrays import IntArray
from goal.common.progress import Reporter
from goal.data.images import Images
from goal.data.transforms import TransformSettings, clean, describe
from goal.storage import checkpoint
from goal.storage.cache import cache_folder
from goal.storage.files import inside

_MOST_IMAGES = 2000
_BATCH = 64


def fit_neck(
    trunk: Trunk,
    images: Images,
    ids: IntArray,
    transform: TransformSettings,
    settings: BankSettings,
    reporter: Reporter,
) -> None:
    """Fit the trunk's neck on (at most 2000, evenly spaced) of the given images, or load it."""
    assert trunk.neck is not None
    chosen = ids[np.linspace(0, len(ids) - 1, min(len(ids), _MOST_IMAGES)).astype(int)]
    path = _place(trunk, images, chosen, transform, settings)
    if path.exists():
        trunk.neck.load_state_dict(checkpoint.load(path))
        return
    tokens = []
    parts = np.array_split(chosen, max(1, len(chosen) // _BATCH))
    for part in reporter.track(parts, len(parts), "Fitting the neck"):
        pixels = np.stack([clean(images.image(int(index)), transform) for index in part])
        tokens.append(trunk.hidden(torch.from_numpy(pixels))[:, 1:].flatten(0, 1))
    trunk.neck.fit(torch.cat(tokens))
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(path, trunk.neck.state_dict())


def _place(
    trunk: Trunk,
    images: Images,
    ids: IntArray,
    transform: TransformSettings,
    settings: BankSettings,
) -> Path:
    digest = hashlib.sha256()
    facts = [trunk.fingerprint(), describe(transform)]
    digest.update(json.dumps(facts).encode())
    for index in ids.tolist():
        digest.update(images.digest(index))
    return inside(cache_folder(settings.folder), f"necks/{digest.hexdigest()[:32]}.pt")
