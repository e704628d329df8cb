"""Features of whole networks, against the transformers classes themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from goal.backbone.features import load_embedder
from goal.backbone.load import load_backbone
from goal.backbone.trunk import BackboneSettings
from goal.common.errors import GoalError
from tests.backbone.test_load import IMAGENET, edit_json, saved

SIDE = 32
VIT: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
VIT |= {"intermediate_size": 32, "image_size": SIDE, "patch_size": 8}
MAP: dict[str, Any] = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
SWIN: dict[str, Any] = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
SWIN |= {"image_size": SIDE, "patch_size": 4}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}
PAIR: dict[str, Any] = {"vision_config": VIT, "text_config": TEXT | {"intermediate_size": 32}}
STEM = {"embedding_size": 8}


def cls(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).last_hidden_state[:, 0])


def pooled(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).pooler_output.flatten(1))


def mean_map(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).last_hidden_state.mean(dim=(2, 3)))


def tower(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model.get_image_features(pixel_values=pixels).pooler_output)


def mean_token(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).last_hidden_state.mean(dim=1))


def mean_patch(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).last_hidden_state[:, 1:].mean(dim=1))


def whole_cls(model: Any, pixels: Tensor) -> Tensor:
    """CLS of a masked autoencoder whose encoder is run on all patches, by hand."""
    at = model.embeddings
    patches = at.patch_embeddings(pixels) + at.position_embeddings[:, 1:]
    first = (at.cls_token + at.position_embeddings[:, :1]).expand(len(pixels), -1, -1)
    hidden = torch.cat([first, patches], dim=1)
    for layer in model.layers:
        out = layer(hidden)
        hidden = out if isinstance(out, Tensor) else out[0]
    return torch.as_tensor(model.layernorm(hidden)[:, 0])


Expected = Callable[[Any, Tensor], Tensor]
FAMILIES: dict[str, tuple[dict[str, Any], Expected, str]] = {
    "vit": (VIT, cls, "CLS"),
    "deit": (VIT, cls, "CLS"),
    "dinov2": (VIT, cls, "CLS"),
    "dinov2_with_registers": (VIT | {"num_register_tokens": 2}, cls, "CLS"),
    "dinov3_vit": (VIT | {"num_register_tokens": 2}, cls, "CLS"),
    "vit_msn": (VIT, cls, "CLS"),
    "vit_mae": (VIT, whole_cls, "CLS"),
    "ijepa": (VIT, mean_token, "mean of the tokens"),
    "data2vec-vision": (VIT, mean_patch, "mean of the patch tokens"),
    "beit": (VIT, pooled, "pooler_output"),
    "clip": (PAIR, tower, "image embedding"),
    "siglip": (PAIR, tower, "image embedding"),
    "metaclip_2": (PAIR, tower, "image embedding"),
    "chinese_clip": (PAIR, tower, "image embedding"),
    "altclip": (PAIR, tower, "image embedding"),
    "aimv2": (PAIR, tower, "image embedding"),
    "clip_vision_model": (VIT, pooled, "pooler_output"),
    "siglip_vision_model": (VIT, pooled, "pooler_output"),
    "dinov3_convnext": (MAP, pooled, "pooler_output"),
    "convnext": (MAP, pooled, "pooler_output"),
    "convnextv2": (MAP, pooled, "pooler_output"),
    "resnet": (MAP | STEM, mean_map, "feature map"),
    "regnet": (MAP | STEM | {"groups_width": 8}, mean_map, "feature map"),
    "poolformer": (MAP, mean_map, "feature map"),
    "pvt_v2": (MAP | {"num_attention_heads": [1, 1, 1, 1]}, mean_map, "feature map"),
    "segformer": (MAP | {"num_attention_heads": [1, 1, 1, 1]}, mean_map, "feature map"),
    "swin": (SWIN, pooled, "pooler_output"),
    "swinv2": (SWIN, pooled, "pooler_output"),
    "focalnet": ({"image_size": SIDE, "embed_dim": 8, "depths": [1, 1]}, pooled, "pooler_output"),
    "mobilenet_v1": ({"depth_multiplier": 0.25}, pooled, "pooler_output"),
    "mobilenet_v2": ({"depth_multiplier": 0.25}, pooled, "pooler_output"),
}


def build(family: str, values: dict[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(family, **values)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = transformers.AutoModel.from_config(config)
        with torch.no_grad():
            for key, tensor in model.state_dict().items():
                if tensor.ndim == 4:  # so that deep networks do not forget their input
                    tensor.normal_(std=(2 / tensor[0].numel()) ** 0.5)
                elif tensor.is_floating_point():
                    least = 0.0 if key.endswith("running_var") else -0.5
                    tensor.add_(0.2 * (torch.rand(tensor.shape) + least))
    return model.eval()


def pixels(side: int = SIDE) -> Tensor:
    rng = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (3, 3, side, side), generator=rng, dtype=torch.uint8)


def scaled(given: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in IMAGENET)
    return (given.float() / 255 - mean) / std


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_feature_is_the_networks_own(family: str, tmp_path: Path) -> None:
    values, expected, reads = FAMILIES[family]
    model = build(family, values)
    embedder = load_embedder(saved(model, tmp_path))
    side = embedder.preprocessing.image_size
    truth = expected(model, scaled(pixels(side)))
    found = embedder(pixels(side))
    assert reads in embedder.reads
    assert found.dtype == torch.float32 and found.shape == (3, embedder.width) == truth.shape
    assert torch.allclose(found, truth, rtol=1e-3, atol=1e-4 * float(truth.abs().max()))
    assert float((truth[0] - truth[1]).abs().max()) > 1e-4 * float(truth.abs().max())


def test_no_text_side_is_kept(tmp_path: Path) -> None:
    model = build("clip", PAIR)
    embedder = load_embedder(saved(model, tmp_path))
    assert not any("text" in name or "logit" in name for name in embedder.state_dict())


def test_the_embedded_backbone_and_its_trunk_and_tail_agree() -> None:
    embedder = load_embedder("digits-vit")
    backbone = load_backbone(BackboneSettings(name="digits-vit"))
    with torch.no_grad():
        truth = backbone.tail(backbone.trunk(pixels(16)))
    assert embedder.preprocessing.image_size == 16 and embedder.width == 64
    assert torch.allclose(embedder(pixels(16)), truth, atol=1e-4)


# -- fingerprints ---------------------------------------------------------------------------------


def test_the_fingerprint_names_weights_and_their_use(tmp_path: Path) -> None:
    model = build("vit", VIT)
    first = load_embedder(saved(model, tmp_path / "a")).fingerprint()
    assert len(first) == 32 and int(first, 16) >= 0
    assert load_embedder(saved(model, tmp_path / "b")).fingerprint() == first
    edit_json(tmp_path / "b" / "preprocessor_config.json", resample=2)
    second = load_embedder(str(tmp_path / "b")).fingerprint()
    edit_json(tmp_path / "a" / "config.json", layer_norm_eps=0.5)
    third = load_embedder(str(tmp_path / "a")).fingerprint()
    with torch.no_grad():
        model.layernorm.bias[0] += 1
    fourth = load_embedder(saved(model, tmp_path / "c")).fingerprint()
    assert len({first, second, third, fourth}) == 4


def test_labels_and_an_unused_pooler_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    model = build("vit", VIT)
    first = load_embedder(saved(model, tmp_path / "a")).fingerprint()
    edit_json(tmp_path / "a" / "config.json", id2label={"0": "cat"}, label2id={"cat": 0})
    assert load_embedder(str(tmp_path / "a")).fingerprint() == first
    model.pooler = None
    assert load_embedder(saved(model, tmp_path / "b")).fingerprint() == first


def test_batch_norms_are_folded_into_the_fingerprinted_weights(tmp_path: Path) -> None:
    embedder = load_embedder(saved(build("resnet", MAP | STEM), tmp_path))
    assert not any(isinstance(part, nn.BatchNorm2d) for part in embedder.modules())


# -- what gives no feature ------------------------------------------------------------------------

_YOLOS = VIT | {"image_size": [SIDE, SIDE], "num_detection_tokens": 3}
NO_FEATURE: dict[str, dict[str, Any]] = {
    "bert": TEXT | {"intermediate_size": 32},
    "yolos": _YOLOS,
    "wav2vec2": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    "siglip2": {"vision_config": VIT | {"num_patches": 16}, "text_config": TEXT},
}


@pytest.mark.parametrize("family", NO_FEATURE)
def test_what_gives_no_image_feature_is_refused(family: str, tmp_path: Path) -> None:
    name = saved(build(family, NO_FEATURE[family]), tmp_path)
    with pytest.raises(GoalError) as caught:
        load_embedder(name)
    text = str(caught.value)
    assert name in text and family in text and "no feature of a whole image" in text
    assert "facebook/dinov2-small" in text
