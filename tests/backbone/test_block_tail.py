"""The last block of a convolutional network as the tail: outputs, gradients, bank and refusals."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import ResNetConfig, ResNetModel

from goal.backbone.tail import BlockTail
from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Backbone, BackboneSettings, split
from goal.bank.bank import BankSettings, TokenBank
from goal.common.errors import GoalError
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings, clean
from tests.backbone.test_tail import pixels, shaken, small_resnet, small_vit

LAST = BackboneSettings(tail="last-block")


def resnet(layer_type: str = "bottleneck", last_depth: int = 2) -> Any:
    config = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, last_depth],
        layer_type=layer_type,
    )
    return shaken(lambda: ResNetModel(config))


def cut(model: Any, settings: BackboneSettings = LAST) -> Backbone:
    return split(copy.deepcopy(model), settings, (0.0,) * 3, (1.0,) * 3)


def pooled(model: Any, images: Tensor) -> Tensor:
    found: Tensor = model(pixel_values=images / 255).pooler_output
    return found.flatten(1)


@pytest.mark.parametrize("layer_type", ["bottleneck", "basic"])
@pytest.mark.parametrize("last_depth", [1, 3])
def test_it_starts_as_the_pretrained_network(layer_type: str, last_depth: int) -> None:
    """Also where the last block is a stage's first, with a shortcut of its own and a stride."""
    model, images = resnet(layer_type, last_depth), pixels(3, 64)
    backbone = cut(model)
    assert isinstance(backbone.tail, BlockTail)
    expected = pooled(model, images.float())
    found = backbone.tail(backbone.trunk(images))
    assert found.shape == (3, backbone.tail.width)
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


def test_its_gradient_is_that_of_the_network() -> None:
    """A folded convolution is scale * weight, so its gradient is the original's over the scale."""
    model, images = resnet(last_depth=3).double(), pixels(3, 64)
    backbone = cut(model)
    trunk, tail = backbone.trunk.double(), backbone.tail.double()
    target = torch.randn(3, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (pooled(model, images.double()) * target).sum().backward()
    (tail(trunk(images)) * target).sum().backward()
    block: Any = tail.get_submodule("block")
    for ours, theirs in zip(block.layer, model.encoder.stages[-1].layers[-1].layer, strict=True):
        norm = theirs.normalization
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        expected = theirs.convolution.weight.grad / scale[:, None, None, None]
        assert expected.norm() > 0
        assert torch.allclose(ours.convolution.weight.grad, expected, rtol=1e-8, atol=1e-12)
        assert torch.allclose(ours.convolution.bias.grad, norm.bias.grad, rtol=1e-8)
    assert all(parameter.requires_grad for parameter in tail.parameters())
    assert not any(parameter.requires_grad for parameter in trunk.parameters())


def test_tokens_are_the_raw_map_below_the_block() -> None:
    model, images = resnet(last_depth=2), pixels(2, 64)
    tokens = cut(model).trunk(images)
    hidden = model.embedder(images.float() / 255)
    for stage in model.encoder.stages[:-1]:
        hidden = stage(hidden)
    below = model.encoder.stages[-1].layers[0](hidden).flatten(2).mT
    assert bool((tokens.normalised >= 0).all())
    assert torch.allclose(tokens.normalised, below, rtol=1e-4, atol=1e-5)
    assert torch.allclose(tokens.cls, below.mean(dim=1), rtol=1e-4, atol=1e-5)
    assert cut(model).trunk.token_shape(64) == (4, 32)


def test_features_from_the_bank_are_those_of_the_network(tmp_path: Path) -> None:
    model = resnet(last_depth=2)
    rng = np.random.default_rng(0)
    images = ArrayImages(rng.integers(0, 256, (5, 70, 70, 3), dtype=np.uint8), np.zeros(5, int))
    transform = TransformSettings(image_size=64, resize=64)
    backbone = cut(model)
    bank = TokenBank(backbone.trunk, transform, BankSettings(folder=str(tmp_path), views=2))
    source = bank.open(images, np.arange(5), augmented_views=True)
    tokens = source.clean(torch.arange(5))
    assert tokens.normalised.dtype == torch.float16
    crops = np.stack([clean(images.image(index), transform) for index in range(5)])
    expected = pooled(model, torch.from_numpy(crops).float())
    assert (backbone.tail(tokens) - expected).abs().max() < 2e-3 * expected.abs().max()
    first, second = source.pair(torch.arange(5), torch.Generator().manual_seed(0))
    both = backbone.tail(first, second)
    alone = torch.cat([backbone.tail(first), backbone.tail(second)])
    assert torch.allclose(both, alone, atol=1e-5)


def test_the_added_block_has_another_bank() -> None:
    model = resnet(last_depth=2)
    added = cut(model, BackboneSettings(tail_inner=16, tail_heads=4)).trunk
    assert added.fingerprint() != cut(model).trunk.fingerprint()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(GoalError, match=r"backbone\.neck"):
        cut(shaken(small_resnet), BackboneSettings(tail="last-block", neck=8))
    with pytest.raises(GoalError, match=r"backbone\.tail is for convolutional"):
        cut(shaken(small_vit))
    tail = cut(shaken(small_resnet)).tail
    extra = Tokens(torch.zeros(1, 7, 24), torch.zeros(1, 24))
    with pytest.raises(GoalError, match="no square map"):
        tail(extra)
