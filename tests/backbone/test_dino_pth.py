"""Official DINO files against a plain re-implementation of DINO's own forward pass."""

import argparse
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ViTModel

from goal.backbone.dino_pth import load_dino_pth
from goal.backbone.load import load_backbone
from goal.backbone.trunk import BackboneSettings
from goal.common.errors import GoalError

Weights = dict[str, Tensor]

SMALL = (128, 2, 4, 16)  # width, depth, patch, image size
VIT_S_16 = (384, 12, 16, 224)
HEAD_WIDTH = 64


def dino_weights(width: int, depth: int, patch: int, image: int, seed: int = 0) -> Weights:
    """A state dict with the names and shapes of DINO's `vision_transformer.py`."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + (image // patch) ** 2, width),
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for block in range(depth):
        for norm in ("norm1", "norm2"):
            shapes[f"blocks.{block}.{norm}.weight"] = (width,)
            shapes[f"blocks.{block}.{norm}.bias"] = (width,)
        for name, fan_out, fan_in in (
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.fc1", 4 * width, width),
            ("mlp.fc2", width, 4 * width),
        ):
            shapes[f"blocks.{block}.{name}.weight"] = (fan_out, fan_in)
            shapes[f"blocks.{block}.{name}.bias"] = (fan_out,)
    rng = torch.Generator().manual_seed(seed)
    weights = {}
    for key, shape in shapes.items():
        drawn = torch.randn(shape, generator=rng)
        if re.search(r"norm\d?\.weight$", key):
            weights[key] = 1 + 0.2 * drawn
        elif len(shape) in (2, 4):
            weights[key] = drawn * drawn[0].numel() ** -0.5
        else:
            weights[key] = 0.2 * drawn
    return weights


def dino_forward(w: Weights, pixels: Tensor) -> Tensor:
    """DINO's forward pass, fused qkv and all, to the CLS feature."""

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-6)

    projection = w["patch_embed.proj.weight"]
    patches = F.conv2d(pixels, projection, w["patch_embed.proj.bias"], stride=projection.shape[-1])
    x = patches.flatten(2).transpose(1, 2)
    count, _, width = x.shape
    x = torch.cat([w["cls_token"].expand(count, -1, -1), x], dim=1) + w["pos_embed"]
    depth = len([key for key in w if key.endswith("attn.qkv.weight")])
    for block in (f"blocks.{index}" for index in range(depth)):
        qkv = linear(norm(x, f"{block}.norm1"), f"{block}.attn.qkv")
        q, k, v = qkv.reshape(count, -1, 3, width // HEAD_WIDTH, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(-2, -1) * HEAD_WIDTH**-0.5).softmax(dim=-1)
        mixed = (attention @ v).transpose(1, 2).reshape(count, -1, width)
        x = x + linear(mixed, f"{block}.attn.proj")
        hidden = F.gelu(linear(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1"))
        x = x + linear(hidden, f"{block}.mlp.fc2")
    return norm(x, "norm")[:, 0]


def random_pixels(size: int, count: int = 2) -> Tensor:
    rng = torch.Generator().manual_seed(5)
    return torch.randint(0, 256, (count, 3, size, size), generator=rng, dtype=torch.uint8)


def saved(content: Any, folder: Path) -> Path:
    path = folder / "weights.pth"
    torch.save(content, path)
    return path


def largest_difference(model: ViTModel, weights: Weights, size: int, count: int = 2) -> float:
    """Between the CLS output of the loaded model and DINO's own forward pass."""
    scaled = random_pixels(size, count).float() / 128 - 1
    with torch.no_grad():
        ours = model.eval()(pixel_values=scaled).last_hidden_state[:, 0]
        return float((ours - dino_forward(weights, scaled)).abs().max())


def test_loaded_model_computes_what_dino_computes(tmp_path: Path) -> None:
    weights = dino_weights(*SMALL)
    model = load_dino_pth(saved(weights, tmp_path))
    assert largest_difference(model, weights, SMALL[-1]) < 1e-4


def test_vit_s_16(tmp_path: Path) -> None:
    weights = dino_weights(*VIT_S_16)
    model = load_dino_pth(saved(weights, tmp_path))
    config = model.config
    assert (config.hidden_size, config.num_hidden_layers) == (384, 12)
    assert (config.num_attention_heads, config.intermediate_size) == (6, 1536)
    assert (config.image_size, config.patch_size) == (224, 16)
    assert largest_difference(model, weights, 224, count=1) < 1e-4


def test_trunk_and_tail_of_a_file_give_dinos_feature_of_imagenet_scaled_pixels(
    tmp_path: Path,
) -> None:
    weights = dino_weights(*SMALL)
    backbone = load_backbone(BackboneSettings(name=str(saved(weights, tmp_path))))
    pixels = random_pixels(SMALL[-1])
    mean = torch.tensor((0.485, 0.456, 0.406)).view(1, 3, 1, 1)
    std = torch.tensor((0.229, 0.224, 0.225)).view(1, 3, 1, 1)
    expected = dino_forward(weights, (pixels / 255 - mean) / std)
    feature = backbone.tail(backbone.trunk(pixels))
    assert (feature - expected).abs().max() < 1e-4


def prefixed(prefix: str, weights: Weights) -> Weights:
    return {prefix + key: value for key, value in weights.items()}


def training_checkpoint(teacher: Weights, student: Weights) -> dict[str, Any]:
    """What DINO's main_dino.py saves, less the optimiser's tensors and its args."""
    head = {
        "head.mlp.0.weight": torch.ones(8, teacher["norm.weight"].numel()),
        "head.mlp.0.bias": torch.ones(8),
        "head.last_layer.weight_g": torch.ones(16, 1),
        "head.last_layer.weight_v": torch.ones(16, 8),
    }
    return {
        "student": prefixed("module.", prefixed("backbone.", student) | head),
        "teacher": prefixed("backbone.", teacher) | head,
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
        "epoch": 100,
        "dino_loss": {"center": torch.zeros(1, 16)},
    }


def test_full_checkpoint_gives_the_teacher(tmp_path: Path) -> None:
    teacher, student = dino_weights(*SMALL), dino_weights(*SMALL, seed=1)
    model = load_dino_pth(saved(training_checkpoint(teacher, student), tmp_path))
    assert largest_difference(model, teacher, SMALL[-1]) < 1e-4


def test_full_checkpoint_holds_the_arguments_of_its_training(tmp_path: Path) -> None:
    """main_dino.py saves `args`, an argparse.Namespace; it is plain data and harmless."""
    teacher, student = dino_weights(*SMALL), dino_weights(*SMALL, seed=1)
    checkpoint = training_checkpoint(teacher, student)
    checkpoint["args"] = argparse.Namespace(arch="vit_small", patch_size=16, lr=0.0005)
    model = load_dino_pth(saved(checkpoint, tmp_path))
    assert largest_difference(model, teacher, SMALL[-1]) < 1e-4


def test_the_student_of_a_parallel_training_alone(tmp_path: Path) -> None:
    teacher, student = dino_weights(*SMALL), dino_weights(*SMALL, seed=1)
    model = load_dino_pth(saved(training_checkpoint(teacher, student)["student"], tmp_path))
    assert largest_difference(model, student, SMALL[-1]) < 1e-4


class Intruder:
    """Unpickling this makes a folder: a stand-in for any code."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_file_is_refused_and_not_run(zipped: bool, tmp_path: Path) -> None:
    mark, path = tmp_path / "executed", tmp_path / "weights.pth"
    content = {**dino_weights(*SMALL), "extra": Intruder(mark)}
    if zipped:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content["extra"], protocol=2))
    with pytest.raises(GoalError, match=r"weights\.pth.*safely"):
        load_dino_pth(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Intruder(mark)))
    assert mark.exists(), "the intruder is harmless, so this test shows nothing"


RESNET = {"conv1.weight": torch.ones(4, 3, 7, 7), "layer1.0.bn1.weight": torch.ones(4)}


@pytest.mark.parametrize(
    "content",
    [RESNET, {"teacher": prefixed("backbone.", RESNET)}, {}, [1, 2], torch.ones(3), {"epoch": 3}],
    ids=["resnet", "resnet checkpoint", "empty", "list", "tensor", "no tensors"],
)
def test_other_content_is_named(content: Any, tmp_path: Path) -> None:
    path = saved(content, tmp_path)
    with pytest.raises(GoalError) as caught:
        load_dino_pth(path)
    text = str(caught.value)
    assert str(path) in text and "pos_embed" in text and "transformers folder" in text


def damaged(change: Callable[[Weights], object]) -> Weights:
    weights = dino_weights(*SMALL)
    change(weights)
    return weights


@pytest.mark.parametrize(
    "weights",
    [
        damaged(lambda w: w.pop("blocks.1.attn.proj.weight")),
        damaged(lambda w: w.pop("blocks.0.attn.qkv.bias")),
        damaged(lambda w: w.update({"blocks.1.mlp.fc1.weight": torch.ones(7, 128)})),
        damaged(lambda w: w.update({"blocks.0.ls1.gamma": torch.ones(128)})),
        damaged(lambda w: w.update({"pos_embed": torch.ones(17, 128)})),
    ],
    ids=["missing weight", "missing bias", "wrong shape", "unknown key", "flat positions"],
)
def test_incomplete_or_foreign_transformers_are_named(weights: Weights, tmp_path: Path) -> None:
    path = saved(weights, tmp_path)
    with pytest.raises(GoalError, match=re.escape(str(path))):
        load_dino_pth(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>404 Not Found</html>", b"GIF89a" + bytes(40), b"PK\x03\x04" + bytes(60), b"J"],
    ids=["empty", "web page", "picture", "zip head", "one byte"],
)
def test_garbage_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(GoalError, match=r"weights\.pth is not a DINO weight file"):
        load_dino_pth(path)


def test_a_download_cut_short_is_named(tmp_path: Path) -> None:
    path = saved(dino_weights(*SMALL), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(GoalError, match=r"weights\.pth is not a DINO weight file"):
        load_dino_pth(path)


@pytest.mark.parametrize("key", ["blocks.99999999.norm1.weight", "blocks.3.norm1.weight"])
def test_layers_that_the_file_does_not_hold_are_not_made(tmp_path: Path, key: str) -> None:
    weights = dino_weights(width=64, depth=2, patch=4, image=8)
    with pytest.raises(GoalError, match="3 layers are not numbered"):
        load_dino_pth(saved({**weights, key: torch.zeros(64)}, tmp_path))


def test_widths_that_the_file_does_not_hold_are_not_made(tmp_path: Path) -> None:
    weights = dino_weights(width=64, depth=2, patch=4, image=8)
    wide = {**weights, "pos_embed": torch.zeros(1, 5, 64 * 500)}
    with pytest.raises(GoalError, match="width 32000"):
        load_dino_pth(saved(wide, tmp_path))
    expanded = {**weights, "pos_embed": torch.zeros(1).expand(1, 5, 64 * 10**9)}
    with pytest.raises(GoalError, match="not a DINO weight file"):
        load_dino_pth(saved(expanded, tmp_path))
