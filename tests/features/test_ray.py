"""Features on Ray: those of one process, even if a worker is killed on the way."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goal.backbone.features import load_embedder
from goal.common.progress import Reporter
from goal.data.images import FileImages
from goal.data.own_images import ImageSet
from goal.features.bank import FeatureBank
from goal.features.embed import origin_of
from goal.features.store import FeatureStore

pytest.importorskip("ray.data", reason="Ray Data is not installed")


class Deadly(FileImages):
    """Images, one of which kills the process that looks at it, once."""

    def __init__(self, paths: list[Path], mark: Path) -> None:
        super().__init__(paths, np.zeros(len(paths), np.int64))
        self._mark = mark

    def image(self, index: int) -> Image.Image:
        """Die at the hundredth image, unless somebody has."""
        if index == 100 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().image(index)


def test_two_workers_one_of_which_dies_give_the_features_of_one_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(150)]
    for path in paths:
        Image.fromarray(rng.integers(256, size=(16, 16), dtype=np.uint8)).save(path)
    paths[7].write_bytes(b"no image")
    names = [path.name for path in paths]
    embedder = load_embedder("digits-vit")

    def features(folder: Path, images: FileImages, workers: int) -> FeatureStore:
        origin = origin_of(embedder)
        bank = FeatureBank(origin, folder, lambda: embedder, Reporter(), workers)
        lost = bank.fill(ImageSet(images, names, list(range(150)), []))
        assert list(lost) == [7]
        return FeatureStore(folder)

    plain = FileImages(paths, np.zeros(len(paths), np.int64))
    alone = features(tmp_path / "alone", plain, 0)
    several = features(tmp_path / "several", Deadly(paths, tmp_path / "dead"), 2)
    assert (tmp_path / "dead").exists()
    rows = several.find(alone.digests())
    assert len(alone) == len(several) == 149 and (rows >= 0).all()
    assert np.array_equal(alone.features(), several.features(rows))
