"""The CLS tail against the full transformers model: outputs and gradients."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
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

from goal.backbone import tail as tail_module
from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Backbone, BackboneSettings, split
from goal.common.errors import GoalError

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


def shaken(build: Callable[[], nn.Module]) -> Any:
    """A seeded model: random weights also where initialisation has ones and zeros."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.1 * torch.rand(buffer.shape, generator=generator))
    return model.eval()


def small_vit() -> Any:
    return vit(32, 2, 4, 16)


def small_resnet() -> Any:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    return ResNetModel(config)


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
    model = shaken(lambda: build(width, depth, heads, image))
    backbone = cut(model)
    images = pixels(batch, image)
    target = torch.randn(batch, width, generator=torch.Generator().manual_seed(1))

    expected = full_cls(model, images)
    tail = backbone.tail
    assert isinstance(tail, tail_module.ClsTail)
    feature = tail(backbone.trunk(images))
    assert (feature - expected).abs().max() < 1e-5

    (expected * target).sum().backward()
    (feature * target).sum().backward()
    layer = model.layers[-1] if build is vit else model.encoder.layer[-1]
    norm1 = layer.layernorm_before if build is vit else layer.norm1
    norm2 = layer.layernorm_after if build is vit else layer.norm2
    pairs: list[tuple[Tensor | None, Tensor]] = [
        (tail.gain, norm1.weight),
        (tail.bias, norm1.bias),
        (tail.norm2.weight, norm2.weight),
        (tail.norm2.bias, norm2.bias),
        (tail.query.weight, layer.attention.q_proj.weight),
        (tail.query.bias, layer.attention.q_proj.bias),
        (tail.key.weight, layer.attention.k_proj.weight),
        (tail.value.weight, layer.attention.v_proj.weight),
        (tail.value.bias, layer.attention.v_proj.bias),
        (tail.out.weight, layer.attention.o_proj.weight),
        (tail.out.bias, layer.attention.o_proj.bias),
        *zip(tail.mlp.parameters(), layer.mlp.parameters(), strict=True),
    ]
    if build is not vit:
        pairs += [
            (tail.scale1, layer.layer_scale1.lambda1),
            (tail.scale2, layer.layer_scale2.lambda1),
        ]
    for ours, theirs in pairs:
        assert ours is not None and ours.grad is not None and theirs.grad is not None
        scale = theirs.grad.norm()
        assert scale > 0
        assert (ours.grad - theirs.grad).norm() <= 1e-5 * scale
    # The key bias has no effect on a softmax over keys: the full model's gradient is rounding.
    assert layer.attention.k_proj.bias.grad.norm() < 1e-4 * layer.attention.q_proj.bias.grad.norm()


def test_final_norm_and_trunk_stay_frozen() -> None:
    backbone = cut(shaken(small_vit))
    assert not any(p.requires_grad for p in backbone.trunk.parameters())
    assert isinstance(backbone.tail, tail_module.ClsTail)
    assert not any(p.requires_grad for p in backbone.tail.final_norm.parameters())
    backbone.tail(backbone.trunk(pixels(2, 16))).sum().backward()
    trained = [p for p in backbone.tail.parameters() if p.requires_grad]
    assert trained and all(p.grad is not None for p in trained)


def test_other_input_size_interpolates_positions() -> None:
    model = shaken(small_vit)
    backbone = cut(model)
    images = pixels(2, 24)
    mean = torch.tensor((0.5, 0.4, 0.3)).view(1, 3, 1, 1)
    std = torch.tensor((0.2, 0.3, 0.4)).view(1, 3, 1, 1)
    scaled = (images.float() / 255 - mean) / std
    hidden = model(pixel_values=scaled, interpolate_pos_encoding=True).last_hidden_state
    assert (backbone.tail(backbone.trunk(images)) - hidden[:, 0]).abs().max() < 1e-5
    assert backbone.trunk.token_shape(24) == (37, 32)


def test_convolutional_tail_starts_as_global_average_pooling() -> None:
    """In double precision, since folded batch norms round differently from unfolded ones."""
    model = shaken(small_resnet).double()
    backbone = resnet_backbone(model)
    images = pixels(2, 64)
    feature_map = model(pixel_values=images.double() / 255).last_hidden_state
    expected = feature_map.mean(dim=(2, 3))
    assert torch.allclose(backbone.tail(backbone.trunk(images)), expected, rtol=1e-9)
    assert backbone.trunk.token_shape(64) == (1 + feature_map[0, 0].numel(), 32)


def test_folded_batch_norms_agree_in_single_precision_too() -> None:
    model = shaken(small_resnet)
    images = pixels(2, 64)
    expected = model(pixel_values=images.float() / 255).last_hidden_state.flatten(2).mT
    found = resnet_backbone(model).trunk.hidden(images)[:, 1:]
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


def resnet_backbone(model: nn.Module, neck: int | None = None) -> Backbone:
    settings = BackboneSettings(tail_inner=16, tail_mlp=24, tail_heads=4, neck=neck)
    backbone = split(copy.deepcopy(model), settings, (0.0,) * 3, (1.0,) * 3)
    dtype = next(model.parameters()).dtype
    return Backbone(backbone.trunk.to(dtype), backbone.tail.to(dtype))


def test_the_neck_projects_onto_the_principal_directions() -> None:
    model = shaken(small_resnet).double()
    backbone = resnet_backbone(model, neck=5)
    with pytest.raises(GoalError, match="no neck has been fitted"):
        backbone.trunk(pixels(1, 64))
    rng = torch.Generator().manual_seed(0)
    mixing = torch.randn(32, 32, generator=rng, dtype=torch.float64)
    tokens = torch.randn(200, 32, generator=rng, dtype=torch.float64) @ mixing + 3
    assert backbone.trunk.neck is not None
    backbone.trunk.neck.fit(tokens)
    expected = PCA(5, svd_solver="full").fit_transform(tokens.numpy())
    found = backbone.trunk.neck(tokens).numpy()
    signs = np.sign((found * expected).sum(axis=0))
    assert np.allclose(found, expected * signs)
    wide = resnet_backbone(model).trunk.hidden(pixels(2, 64))
    cls = backbone.trunk(pixels(2, 64)).cls
    assert torch.allclose(cls, backbone.trunk.neck(wide)[:, 0])
    assert torch.allclose(backbone.tail(backbone.trunk(pixels(2, 64))), cls)


@pytest.mark.parametrize(("build", "neck"), [(small_vit, 8), (small_resnet, 33)])
def test_impossible_necks_are_refused(build: Callable[[], Any], neck: int) -> None:
    settings = BackboneSettings(neck=neck, tail_inner=16, tail_heads=4)
    with pytest.raises(GoalError, match=r"backbone\.neck"):
        split(shaken(build), settings, (0.0,) * 3, (1.0,) * 3)


def test_fingerprint_depends_on_every_trunk_weight_and_not_on_the_tail() -> None:
    model = shaken(small_vit)
    reference = cut(model).trunk.fingerprint()
    assert cut(model).trunk.fingerprint() == reference
    with torch.no_grad():
        model.layers[-1].mlp.fc1.weight[0, 0] += 1
    assert cut(model).trunk.fingerprint() == reference
    with torch.no_grad():
        model.layers[0].mlp.fc1.weight[0, 0] += 1e-3
    assert cut(model).trunk.fingerprint() != reference


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_pooling_in_pieces_equals_pooling_at_once(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens in two parts and several chunks, against one softmax over everything."""
    monkeypatch.setattr(tail_module, "_CHUNK_BYTES", 2 * 5 * 6 * 8)  # two images in float64
    rng = torch.Generator().manual_seed(0)
    parts = [torch.randn(count, 5, 6, generator=rng).to(dtype) for count in (3, 4)]
    back = torch.randn(7, 2, 6, generator=rng, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(7, 2, 6, generator=rng, dtype=torch.float64)

    pooled = tail_module.attention_pool(back, parts)
    (gradient,) = torch.autograd.grad((pooled * upstream).sum(), back)
    whole = torch.cat(parts).double()
    weights = torch.einsum("bhd,bnd->bhn", back, whole).softmax(dim=-1)
    expected = torch.einsum("bhn,bnd->bhd", weights, whole)
    (expected_gradient,) = torch.autograd.grad((expected * upstream).sum(), back)
    assert torch.allclose(pooled, expected, atol=1e-12)
    assert torch.allclose(gradient, expected_gradient, atol=1e-12)


def test_parts_are_stacked() -> None:
    backbone = cut(shaken(lambda: vit(32, 2, 4, 16)))
    tokens = backbone.trunk(pixels(5, 16))
    parts = [Tokens(tokens.normalised[rows], tokens.cls[rows]) for rows in (slice(2), slice(2, 5))]
    assert torch.allclose(backbone.tail(*parts), backbone.tail(tokens), atol=1e-5)


def test_tokens_that_need_a_gradient_get_one() -> None:
    rng = torch.Generator().manual_seed(0)
    back = torch.randn(2, 1, 3, generator=rng)
    tokens = torch.randn(2, 4, 3, generator=rng, requires_grad=True)
    tail_module.attention_pool(back, [tokens]).sum().backward()
    assert tokens.grad is not None and tokens.grad.abs().sum() > 0
