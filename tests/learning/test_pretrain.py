"""Pretraining: balanced targets, base classes only, and the same weights however often stopped."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from goal.cli import main
from goal.common.errors import GoalError
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings
from goal.learning import pretrain as module
from goal.learning.pretrain import PretrainSettings, pretrain, random_views, sinkhorn

TINY = PretrainSettings(width=16, depth=2, heads=2, prototypes=8, epochs=45, batch_size=8)
TRANSFORM = TransformSettings(image_size=8, resize=8, flip=False)


def noise_images() -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.zeros(16, dtype=np.int64))


def test_sinkhorn_gives_distributions_that_use_all_prototypes_alike() -> None:
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)) + torch.arange(8)
    share = sinkhorn(logits, rounds=100)
    assert torch.allclose(share.sum(dim=1), torch.ones(64))
    assert torch.allclose(share.sum(dim=0), torch.full((8,), 8.0), atol=1e-3)


def test_views_without_any_disturbance_are_the_image() -> None:
    strengths = ("rotation", "scale", "shear", "shift", "warp", "contrast", "noise")
    settings = PretrainSettings().model_copy(update=dict.fromkeys(strengths, 0.0))
    pixels = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    views = random_views(pixels, settings, torch.Generator().manual_seed(1))
    assert torch.allclose(views, (pixels - 0.5) / 0.5, atol=1e-5)
    moved = random_views(pixels, PretrainSettings(), torch.Generator().manual_seed(1))
    again = random_views(pixels, PretrainSettings(), torch.Generator().manual_seed(1))
    assert torch.equal(moved, again) and not torch.allclose(moved, views, atol=0.1)


def test_interrupted_pretraining_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.arange(16)
    pretrain(noise_images(), ids, TRANSFORM, TINY, tmp_path / "whole")
    original = module._Pretraining.train_epoch

    class Stop(Exception):
        pass

    def stopping(self: module._Pretraining, epoch: int) -> float:
        if epoch == 30:
            raise Stop
        return original(self, epoch)

    monkeypatch.setattr(module._Pretraining, "train_epoch", stopping)
    with pytest.raises(Stop):
        pretrain(noise_images(), ids, TRANSFORM, TINY, tmp_path / "stopped")
    monkeypatch.setattr(module._Pretraining, "train_epoch", original)
    other = TINY.model_copy(update={"lr": 1e-3})
    with pytest.raises(GoalError, match="other settings"):
        pretrain(noise_images(), ids, TRANSFORM, other, tmp_path / "stopped")
    pretrain(noise_images(), ids, TRANSFORM, TINY, tmp_path / "stopped")
    first, second = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not (tmp_path / "stopped" / "pretraining.pt").exists()


def test_only_base_classes_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    original = ArrayImages.image

    def watched(self: ArrayImages, index: int) -> Image.Image:
        seen.add(int(self.labels[index]))
        return original(self, index)

    monkeypatch.setattr(ArrayImages, "image", watched)
    tiny = ["width=16", "depth=2", "heads=2", "epochs=1", "prototypes=8"]
    flags = [f"pretrain.{text}" for text in tiny]
    with pytest.raises(SystemExit, match="0"):
        main(["pretrain", "--out", str(tmp_path / "vit"), "--set", *flags])
    assert seen == {0, 1, 2, 3}


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (folder := tmp_path / "out").mkdir()
    (folder / "model.safetensors").symlink_to(tmp_path / "victim")
    with pytest.raises(GoalError, match=r"not empty \(there is model\.safetensors\)"):
        pretrain(noise_images(), np.arange(16), TRANSFORM, TINY, folder)
    assert (tmp_path / "victim").read_text() == "precious"
