"""The CLS tail against the full transformers model: outputs and gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTModel,
)

from goal.backbone import Backbone, BackboneSettings
from goal.backbone.trunk import split

SIZES = [(32, 2, 4, 3, 16), (48, 3, 3, 2, 32)]  # width, depth, heads, batch, image size


def vit(width: int, depth: int, heads: int, image: int) -> Any:
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=image,
        patch_size=4,
    )
    return ViTModel(config, add_pooling_layer=False)


def dinov2(width: int, depth: int, heads: int, image: int, swiglu: bool = False) -> Any:
    return Dinov2Model(
        Dinov2Config(
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            image_size=image,
            patch_size=4,
            layerscale_value=0.3,
            use_swiglu_ffn=swiglu,
        )
    )


def dinov2_swiglu(width: int, depth: int, heads: int, image: int) -> Any:
    return dinov2(width, depth, heads, image, swiglu=True)


def dinov2_registers(width: int, depth: int, heads: int, image: int) -> Any:
    return Dinov2WithRegistersModel(
        Dinov2WithRegistersConfig(
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            image_size=image,
            patch_size=4,
            num_register_tokens=3,
            layerscale_value=0.3,
        )
    )


def shaken(model: nn.Module) -> Any:
    """Random weights everywhere, also where initialisation has ones and zeros."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def cut(model: nn.Module) -> Backbone:
    return split(copy.deepcopy(model), BackboneSettings(), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def pixels(count: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, 256, (count, 3, size, size), generator=generator, dtype=torch.uint8)


def full_cls(model: Any, images: Tensor) -> Tensor:
    mean = torch.tensor((0.5, 0.4, 0.3)).view(1, 3, 1, 1)
    std = torch.tensor((0.2, 0.3, 0.4)).view(1, 3, 1, 1)
    hidden: Tensor = model(pixel_values=(images.float() / 255 - mean) / std).last_hidden_state
    return hidden[:, 0]


@pytest.mark.parametrize("build", [vit, dinov2, dinov2_swiglu, dinov2_registers])
@pytest.mark.parametrize(("width", "depth", "heads", "batch", "image"), SIZES)
def test_equals_the_full_model(
    build: Any, width: int, depth: int, heads: int, batch: int, image: int
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = shaken(build(width, depth, heads, image))
    backbone = cut(model)
    images = pixels(batch, image)
    target = torch.randn(batch, width, generator=torch.Generator().manual_seed(1))

    expected = full_cls(model, images)
    feature = backbone.tail(backbone.trunk(images))
    assert (feature - expected).abs().max() < 1e-5

    (expected * target).sum().backward()
    (feature * target).sum().backward()
    layer = model.layers[-1] if build is vit else model.encoder.layer[-1]
    norm1 = layer.layernorm_before if build is vit else layer.norm1
    norm2 = layer.layernorm_after if build is vit else layer.norm2
    pairs: list[tuple[Tensor | None, Tensor]] = [
        (backbone.tail.gain, norm1.weight),
        (backbone.tail.bias, norm1.bias),
        (backbone.tail.norm2.weight, norm2.weight),
        (backbone.tail.norm2.bias, norm2.bias),
        (backbone.tail.query.weight, layer.attention.q_proj.weight),
        (backbone.tail.query.bias, layer.attention.q_proj.bias),
        (backbone.tail.key.weight, layer.attention.k_proj.weight),
        (backbone.tail.value.weight, layer.attention.v_proj.weight),
        (backbone.tail.value.bias, layer.attention.v_proj.bias),
        (backbone.tail.out.weight, layer.attention.o_proj.weight),
        (backbone.tail.out.bias, layer.attention.o_proj.bias),
        *zip(backbone.tail.mlp.parameters(), layer.mlp.parameters(), strict=True),
    ]
    if build is not vit:
        pairs += [
            (backbone.tail.scale1, layer.layer_scale1.lambda1),
            (backbone.tail.scale2, layer.layer_scale2.lambda1),
        ]
    for ours, theirs in pairs:
        assert ours is not None and ours.grad is not None and theirs.grad is not None
        scale = theirs.grad.norm()
        assert scale > 0
        assert (ours.grad - theirs.grad).norm() <= 1e-5 * scale
    # The key bias has no effect on a softmax over keys: the full model's gradient is rounding.
    assert layer.attention.k_proj.bias.grad.norm() < 1e-4 * layer.attention.q_proj.bias.grad.norm()


def test_final_norm_and_trunk_stay_frozen() -> None:
    backbone = cut(shaken(vit(32, 2, 4, 16)))
    assert not any(p.requires_grad for p in backbone.trunk.parameters())
    assert not any(p.requires_grad for p in backbone.tail.final_norm.parameters())
    backbone.tail(backbone.trunk(pixels(2, 16))).sum().backward()
    trained = [p for p in backbone.tail.parameters() if p.requires_grad]
    assert trained and all(p.grad is not None for p in trained)


def test_other_input_size_interpolates_positions() -> None:
    model = shaken(vit(32, 2, 4, 16))
    backbone = cut(model)
    images = pixels(2, 24)
    mean = torch.tensor((0.5, 0.4, 0.3)).view(1, 3, 1, 1)
    std = torch.tensor((0.2, 0.3, 0.4)).view(1, 3, 1, 1)
    scaled = (images.float() / 255 - mean) / std
    hidden = model(pixel_values=scaled, interpolate_pos_encoding=True).last_hidden_state
    assert (backbone.tail(backbone.trunk(images)) - hidden[:, 0]).abs().max() < 1e-5
    assert backbone.trunk.token_shape(24) == (37, 32)


def test_convolutional_tail_starts_as_global_average_pooling() -> None:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    model = shaken(ResNetModel(config))
    settings = BackboneSettings(tail_inner=16, tail_mlp=24, tail_heads=4)
    backbone = split(copy.deepcopy(model), settings, (0.0,) * 3, (1.0,) * 3)
    images = pixels(2, 64)
    feature_map = model(pixel_values=images.float() / 255).last_hidden_state
    expected = feature_map.mean(dim=(2, 3))
    assert torch.allclose(backbone.tail(backbone.trunk(images)), expected, atol=1e-6)
    assert backbone.trunk.token_shape(64) == (1 + feature_map[0, 0].numel(), 32)


def test_fingerprint_depends_on_every_trunk_weight_and_not_on_the_tail() -> None:
    model = shaken(vit(32, 2, 4, 16))
    reference = cut(model).trunk.fingerprint()
    assert cut(model).trunk.fingerprint() == reference
    with torch.no_grad():
        model.layers[-1].mlp.fc1.weight[0, 0] += 1
    assert cut(model).trunk.fingerprint() == reference
    with torch.no_grad():
        model.layers[0].mlp.fc1.weight[0, 0] += 1e-3
    assert cut(model).trunk.fingerprint() != reference
