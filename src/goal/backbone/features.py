"""Whole backbones: one feature per image, for every image network that transformers loads.

Shapes: B images, S side, D width, n tokens, C channels, h x w map.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from goal.backbone.names import DEFAULT_EMBEDDER
from goal.backbone.preprocessing import Preprocessing
from goal.backbone.pretrained import Pretrained, load_pretrained, quiet_transformers
from goal.backbone.trunk import fingerprint_of, fold_batch_norms
from goal.common.errors import GoalError

_CONVOLUTIONS = 4  # with so many, channels last pays; vision transformers have one


@dataclass(frozen=True)
class Reading:
    """Where in a network its feature is: a sentence for people, and how it is had.

    `unused` names the children that the feature does not need; they are left out.
    """

    text: str
    read: Callable[[Any, Tensor], Tensor]
    unused: tuple[str, ...] = ()


class Embedder(nn.Module):
    """A frozen network that turns uint8 pixels into one feature per image.

    Attributes:
        name: What it was loaded by.
        reads: Where in the network the feature is, in a few words.
        width: Numbers per feature.
        preprocessing: How images are brought to size before they come here.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, name: str, model: nn.Module, reading: Reading, preprocessing: Preprocessing
    ) -> None:
        super().__init__()
        self.name = name
        self.reads = reading.text
        self.preprocessing = preprocessing
        self.model = model.eval().requires_grad_(False)
        self._read = reading.read
        self.register_buffer("mean", torch.tensor(preprocessing.mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(preprocessing.std).view(1, 3, 1, 1))
        # Before batch norms are folded: the same on every machine, however it rounds.
        self._fingerprint = fingerprint_of(
            [self.reads, _config_facts(model), preprocessing.facts()], self.state_dict()
        )
        fold_batch_norms(self.model)
        convolutions = sum(isinstance(part, nn.Conv2d) for part in self.model.modules())
        self._format = torch.preserve_format
        if convolutions >= _CONVOLUTIONS:
            self._format = torch.channels_last
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.width = self._measured_width()

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Features (B, D) in float32 of uint8 pixels (B, 3, S, S)."""
        scaled = (pixels.to(self.mean.device, self.mean.dtype) / 255 - self.mean) / self.std
        if self._format is torch.channels_last:
            scaled = scaled.contiguous(memory_format=torch.channels_last)
        return self._read(self.model, scaled).float()

    def fingerprint(self) -> str:
        """Hash of all weights and of how they are used, preprocessing included."""
        return self._fingerprint

    def _measured_width(self) -> int:
        """Look at one blank image: what gives no feature fails here, before any work."""
        side = self.preprocessing.image_size
        try:
            feature = self(torch.zeros(1, 3, side, side, dtype=torch.uint8))
        except GoalError:
            raise
        except Exception as error:  # networks that want text, sound or films raise anything
            why = f"it does not run on an image ({error})"
            raise _no_feature(self.name, self.model, why) from error
        if feature.ndim != 2 or len(feature) != 1:
            raise _no_feature(self.name, self.model, f"its output has the shape {feature.shape}")
        return int(feature.shape[1])


def load_embedder(
    name: str = DEFAULT_EMBEDDER, download: bool = False, image_size: int | None = None
) -> Embedder:
    """Load a whole network as a source of features.

    Args:
        name: A hub id, a transformers folder, a DINO ``.pth`` file, or an embedded backbone.
        download: Whether a hub id that is not on this machine may be fetched.
        image_size: Side of the square input, if not the one that the network was made for.
    """
    found = load_pretrained(name, download)
    reading = _reading(found)
    for child in reading.unused:
        if hasattr(found.model, child):
            setattr(found.model, child, None)
    found.require_weights()
    with quiet_transformers():
        return Embedder(name, found.model, reading, found.preprocessing.at(image_size))


# -- where the feature is -------------------------------------------------------------------------


def _reading(found: Pretrained) -> Reading:
    """Choose by family; families without an entry are read by their pooled output."""
    family = found.model.config.model_type
    if family in _detectors():
        raise _no_feature(found.name, found.model, "it finds objects and describes no whole image")
    if family == "siglip2":
        raise _no_feature(
            found.name,
            found.model,
            "it takes patches of any number; SigLIP 2 of fixed size (such as "
            "google/siglip2-base-patch16-224) works",
        )
    return _FAMILIES.get(family, _POOLED)


def _detectors() -> set[str]:
    """Families of networks that find objects."""
    from transformers.models.auto import modeling_auto as families  # slow to import

    return {
        *families.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES,
        *families.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES,
    }


def _call(model: Any, pixels_B3SS: Tensor) -> Any:
    """Run a network, at sizes it was not trained for too where it can be."""
    accepts = inspect.signature(model.forward).parameters
    extra = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in accepts else {}
    return model(pixel_values=pixels_B3SS, **extra)


def _cls(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(_call(model, pixels).last_hidden_state[:, 0])


def _mean_token(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(_call(model, pixels).last_hidden_state.mean(dim=1))


def _mean_patch(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(_call(model, pixels).last_hidden_state[:, 1:].mean(dim=1))


def _unmasked_cls(model: Any, pixels: Tensor) -> Tensor:
    """CLS of a masked autoencoder that sees every patch, in order."""
    model.config.mask_ratio = model.embeddings.config.mask_ratio = 0.0
    order_n = torch.arange((pixels.shape[-1] // model.config.patch_size) ** 2, device=pixels.device)
    noise_Bn = order_n.expand(len(pixels), -1).to(pixels.dtype)
    return torch.as_tensor(model(pixel_values=pixels, noise=noise_Bn).last_hidden_state[:, 0])


def _image_tower(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(model.get_image_features(pixel_values=pixels).pooler_output)


def _feature_map(model: Any, pixels: Tensor) -> Tensor:
    return torch.as_tensor(_call(model, pixels).last_hidden_state.mean(dim=(2, 3)))


def _pooled(model: Any, pixels: Tensor) -> Tensor:
    pooled = getattr(_call(model, pixels), "pooler_output", None)
    if not isinstance(pooled, Tensor):
        raise _no_feature(model.config.name_or_path, model, "it has no pooled output")
    return pooled.flatten(1) if pooled.shape[2:] in ((), (1, 1)) else pooled


_CLS = Reading("CLS token after the final norm", _cls, unused=("pooler",))
_MAP = Reading("mean of the feature map", _feature_map)
_POOLED = Reading("pooler_output", _pooled)
_TOWER = Reading(
    "pooled image embedding (get_image_features)",
    _image_tower,
    unused=("text_model", "text_projection", "logit_scale", "logit_bias", "temperature"),
)
_FAMILIES: dict[str, Reading] = {
    **dict.fromkeys(("vit", "deit", "dinov2", "dinov2_with_registers"), _CLS),
    **dict.fromkeys(("dinov3_vit", "vit_msn"), _CLS),
    "vit_mae": Reading("CLS token after the final norm, nothing masked", _unmasked_cls),
    "ijepa": Reading("mean of the tokens after the final norm", _mean_token, unused=("pooler",)),
    "data2vec-vision": Reading("mean of the patch tokens", _mean_patch, unused=("pooler",)),
    **dict.fromkeys(("resnet", "regnet", "poolformer", "pvt_v2", "segformer"), _MAP),
    **dict.fromkeys(("swiftformer", "textnet"), _MAP),
    **dict.fromkeys(("clip", "siglip", "metaclip_2", "chinese_clip", "altclip"), _TOWER),
    **dict.fromkeys(("aimv2", "clipseg", "align"), _TOWER),
}


def _no_feature(name: str, model: Any, why: str) -> GoalError:
    return GoalError(
        f"The network {name} (of type {model.config.model_type}) gives no feature of a whole "
        f"image: {why}. Take an image network such as facebook/dinov2-small; docs/backbones.md "
        f"lists more."
    )


_NO_FACTS = {"transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path"} | {
    "id2label",
    "label2id",
    "problem_type",
    "text_config",
    "mask_ratio",
}


def _config_facts(model: Any) -> dict[str, Any]:
    """The configuration as far as it is not the family's usual one; no labels, no text side."""
    facts = model.config.to_diff_dict()
    return {key: value for key, value in facts.items() if key not in _NO_FACTS}
