"""Official DINO ``.pth`` files: their keys renamed to those of `transformers.ViTModel`."""

import math
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from goal.common.errors import GoalError
from goal.common.tensor_files import load_tensors

if TYPE_CHECKING:
    from transformers import ViTModel

_HEAD_WIDTH = 64
_RENAMED = [
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^blocks\.(\d+)\.norm1\.", r"layers.\1.layernorm_before."),
    (r"^blocks\.(\d+)\.norm2\.", r"layers.\1.layernorm_after."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"layers.\1.attention.o_proj."),
    (r"^blocks\.(\d+)\.mlp\.", r"layers.\1.mlp."),
    (r"^norm\.", "layernorm."),
]


def load_dino_pth(path: Path) -> "ViTModel":
    """Load an official DINO ViT: a plain backbone file, or a full checkpoint (its teacher)."""
    advice = "Take dino_vitbase16_pretrain.pth or its siblings from the DINO repository."
    try:
        with torch.serialization.safe_globals([Namespace]):  # full checkpoints hold their flags
            content = _load(path)
    except Exception as error:  # torch raises whatever the damage leads it to
        raise GoalError(
            f"{path} is not a DINO weight file that can be loaded safely ({type(error).__name__}). "
            f"{advice}"
        ) from error
    weights = _backbone_weights(content, path)
    try:
        return vit_from_dino(weights)
    except (RuntimeError, ValueError) as error:
        raise GoalError(f"The weights in {path} fit no DINO ViT: {error} {advice}") from error


def _load(path: Path) -> Any:
    if not path.is_file():  # a pipe would be waited for, and a device never ends
        raise ValueError("not a regular file")
    with path.open("rb") as stream:
        return load_tensors(stream)


def vit_from_dino(weights: Mapping[str, Tensor]) -> "ViTModel":
    """Build the ViT that a DINO state dict describes and fill it."""
    from transformers import ViTConfig, ViTModel  # slow to import

    _, tokens, width = weights["pos_embed"].shape
    patch = weights["patch_embed.proj.weight"].shape[-1]
    depth = _depth(weights)
    hidden = weights["blocks.0.mlp.fc1.weight"].shape[0]
    if weights["blocks.0.mlp.fc1.weight"].shape != (hidden, width) or width % _HEAD_WIDTH:
        raise ValueError(f"the width {width} of its position embedding is not that of its layers.")
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // _HEAD_WIDTH,
        intermediate_size=hidden,
        image_size=math.isqrt(tokens - 1) * patch,
        patch_size=patch,
        layer_norm_eps=1e-6,
        qkv_bias=True,
    )
    model = ViTModel(config, add_pooling_layer=False)
    model.load_state_dict(rename(weights))
    return model


def _depth(weights: Mapping[str, Tensor]) -> int:
    """Number of layers: each must be there, so that none is made that the file does not fill."""
    keys = [key.split(".", 2) for key in weights if key.startswith("blocks.")]
    per_layer = Counter(key[1] for key in keys)
    if per_layer.keys() != {str(number) for number in range(len(per_layer))}:
        raise ValueError(f"its {len(per_layer)} layers are not numbered 0, 1, 2 and so on.")
    if len(set(per_layer.values())) != 1:
        raise ValueError("its layers have different numbers of weights.")
    return len(per_layer)


def rename(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Map DINO keys to transformers keys; the fused qkv matrix becomes three."""
    renamed: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        fused = re.fullmatch(r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)", key)
        if fused:
            for name, part in zip("qkv", tensor.chunk(3), strict=True):
                renamed[f"layers.{fused[1]}.attention.{name}_proj.{fused[2]}"] = part.clone()
            continue
        for pattern, replacement in _RENAMED:
            key = re.sub(pattern, replacement, key)
        renamed[key] = tensor
    return renamed


def _backbone_weights(content: object, path: Path) -> dict[str, Tensor]:
    """Strip wrappers (``teacher``, ``module.``, ``backbone.``) and projection-head keys."""
    if isinstance(content, dict) and isinstance(content.get("teacher"), dict):
        content = content["teacher"]
    weights = {
        re.sub(r"^(module\.)?(backbone\.)?", "", str(key)): value
        for key, value in (content.items() if isinstance(content, dict) else ())
        if isinstance(value, Tensor) and "head." not in str(key)
    }
    needed = {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"}
    if missing := sorted(needed - weights.keys()):
        raise GoalError(
            f"{path} holds no DINO vision transformer: {', '.join(missing)} missing. "
            f"For a DINO ResNet or another network, give a transformers folder instead."
        )
    return weights
