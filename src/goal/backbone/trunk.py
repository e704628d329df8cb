"""The frozen trunk: everything below the trained tail, from `transformers` models."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from goal.backbone.neck import Neck
from goal.backbone.preprocessing import Preprocessing
from goal.backbone.tail import BlockTail, Tail, normalise, tail_from_layer, zero_started_tail
from goal.backbone.tokens import Tokens
from goal.common.errors import GoalError, pick
from goal.common.section import Section


class BackboneSettings(Section):
    """Which network, and which tail a convolutional one gets.

    `name` is a hub id, a local transformers folder, an official DINO ``.pth`` file, or an
    embedded backbone. The rest holds for convolutional networks; of all others the pretrained last
    block is trained. `tail` is a block ``added`` on top, which starts as the identity and is cheap,
    or the network's own ``last-block``. `tail_inner`, `tail_mlp` and `tail_heads` size an added
    one, and `neck` projects its wide tokens onto so many principal directions of the base images
    (None: no projection).
    """

    name: str = "facebook/dino-vitb16"
    tail: Literal["added", "last-block"] = "added"
    tail_inner: int = 512
    tail_mlp: int = 1024
    tail_heads: int = 8
    neck: int | None = Field(default=None, gt=0)


class Trunk(nn.Module):
    """A frozen network that turns uint8 pixels into `Tokens`.

    Tokens are normalised with `norm_eps`; with None they are handed over as they are, and without
    the first (the CLS token), which then is only in `Tokens.cls`.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: nn.Module,
        hidden_states: Callable[[nn.Module, Tensor], Tensor],
        norm_eps: float | None,
        pixel_mean: Sequence[float],
        pixel_std: Sequence[float],
        neck: Neck | None = None,
    ) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.neck = neck
        self.norm_eps = norm_eps
        self._hidden_states = hidden_states
        self.register_buffer("mean", torch.tensor(pixel_mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(pixel_std).view(1, 3, 1, 1))

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tokens:
        """Run the trunk on uint8 pixels (B, 3, S, S)."""
        hidden = self.hidden(pixels)
        if self.neck is not None:
            hidden = self.neck(hidden)
        if self.norm_eps is None:
            return Tokens(hidden[:, 1:], hidden[:, 0])
        return normalise(hidden, self.norm_eps)

    @torch.no_grad()
    def hidden(self, pixels: Tensor) -> Tensor:
        """Hidden states of uint8 pixels, CLS first, (B, n, D), before neck and normalisation."""
        scaled = (pixels.to(self.mean.device, self.mean.dtype) / 255 - self.mean) / self.std
        return self._hidden_states(self.model, scaled)

    def token_shape(self, image_size: int) -> tuple[int, int]:
        """Tokens per image and their width, for square inputs of `image_size`."""
        blank = torch.zeros(1, 3, image_size, image_size, dtype=torch.uint8)
        _, tokens, width = self(blank).normalised.shape
        return tokens, width

    def fingerprint(self) -> str:
        """Hash of all weights and of how they are used: the trunk's name in token banks."""
        config: Any = self.model.config
        facts = {key: value for key, value in config.to_dict().items() if key in _CONFIG_FACTS}
        return fingerprint_of([facts, self.norm_eps], self.state_dict())


def fingerprint_of(facts: Any, weights: Mapping[str, Tensor]) -> str:
    """Hash of weights and of plain facts about how they are used: 32 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


_CONFIG_FACTS = frozenset(
    {"model_type", "num_attention_heads", "hidden_act", "patch_size", "depths", "layer_type"}
    | {"downsample_in_first_stage", "downsample_in_bottleneck", "num_register_tokens"}
)


@dataclass(frozen=True)
class Backbone:
    """A trunk and the tail that fits it; `preprocessing` is what the network's files ask for."""

    trunk: Trunk
    tail: Tail
    preprocessing: Preprocessing | None = None


def split(
    model: Any, settings: BackboneSettings, pixel_mean: Sequence[float], pixel_std: Sequence[float]
) -> Backbone:
    """Cut a transformers model into a frozen trunk and a trainable tail."""
    cut = pick(_CUTS, model.config.model_type, "backbone architecture")
    added = cut is _cut_resnet and settings.tail == "added"
    if settings.neck is not None and not added:
        raise GoalError(
            f"backbone.neck narrows the tokens of a block added to a convolutional network; "
            f"the last block of a {model.config.model_type} is pretrained and needs them whole. "
            f"Leave it unset."
        )
    if settings.tail == "last-block" and cut is not _cut_resnet:
        raise GoalError(
            f"backbone.tail is for convolutional networks; of a {model.config.model_type} the last "
            f"block is trained in any case. Leave it unset."
        )
    tail, hidden_states, eps = cut(model, settings)
    neck = None if settings.neck is None else Neck(model.config.hidden_sizes[-1], settings.neck)
    return Backbone(Trunk(model, hidden_states, eps, pixel_mean, pixel_std, neck), tail)


_Cut = tuple[Tail, Callable[[Any, Tensor], Tensor], float | None]


def _cut_vit(model: Any, settings: BackboneSettings) -> _Cut:
    layer = model.layers[-1]
    tail = tail_from_layer(
        norm1=layer.layernorm_before,
        attention=layer.attention,
        norm2=layer.layernorm_after,
        mlp=layer.mlp,
        final_norm=model.layernorm,
    )
    model.layers = model.layers[:-1]
    model.layernorm = nn.Identity()
    return tail, _vit_hidden, layer.layernorm_before.eps


def _vit_hidden(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(
        model(pixel_values=pixels, interpolate_pos_encoding=True).last_hidden_state
    )


def _cut_dinov2(model: Any, settings: BackboneSettings) -> _Cut:
    layer = model.encoder.layer[-1]
    tail = tail_from_layer(
        norm1=layer.norm1,
        attention=layer.attention,
        norm2=layer.norm2,
        mlp=layer.mlp,
        final_norm=model.layernorm,
        scales=(layer.layer_scale1.lambda1, layer.layer_scale2.lambda1),
    )
    model.encoder.layer = model.encoder.layer[:-1]
    model.layernorm = nn.Identity()
    return tail, _plain_hidden, layer.norm1.eps


def _plain_hidden(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model(pixel_values=pixels).last_hidden_state)


def _cut_resnet(model: Any, settings: BackboneSettings) -> _Cut:
    fold_batch_norms(model)
    model.to(memory_format=torch.channels_last)
    if settings.tail == "last-block":
        last = model.encoder.stages[-1]
        block, last.layers = last.layers[-1], last.layers[:-1]
        return BlockTail(block, model.config.hidden_sizes[-1]), _feature_map, None
    tail = zero_started_tail(
        width=settings.neck or model.config.hidden_sizes[-1],
        inner=settings.tail_inner,
        mlp_width=settings.tail_mlp,
        heads=settings.tail_heads,
        rng=torch.Generator().manual_seed(0),
    )
    return tail, _feature_map, 1e-6


def fold_batch_norms(model: nn.Module) -> None:
    """Multiply the frozen batch norms into the convolutions before them: the same function."""
    model.eval()
    for module in list(model.modules()):
        layers = dict(module.named_children())
        convolution, norm = layers.get("convolution"), layers.get("normalization")
        if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            module.convolution = fuse_conv_bn_eval(convolution, norm)
            module.normalization = nn.Identity()


def _feature_map(model: Any, pixels: Tensor) -> Tensor:
    """Feature map as tokens, their mean as CLS."""
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    tokens_BnD = model(pixel_values=pixels).last_hidden_state.flatten(2).transpose(1, 2)
    return torch.cat([tokens_BnD.mean(dim=1, keepdim=True), tokens_BnD], dim=1)


_CUTS: dict[str, Callable[[Any, BackboneSettings], _Cut]] = {
    "vit": _cut_vit,
    "dinov2": _cut_dinov2,
    "dinov2_with_registers": _cut_dinov2,
    "resnet": _cut_resnet,
}
