"""Loading backbones by folder, file and name: the right numbers, or an error that helps."""

import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTModel,
)

from goal.backbone.load import load_backbone
from goal.backbone.trunk import Backbone, BackboneSettings
from goal.common.errors import GoalError

SIZE = 16
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
Statistics = tuple[tuple[float, ...], tuple[float, ...]]

COMMON: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 4,
}


def vit() -> Any:
    return ViTModel(ViTConfig(**COMMON, intermediate_size=32), add_pooling_layer=False)


def vit_with_pooler() -> Any:
    return ViTModel(ViTConfig(**COMMON, intermediate_size=32))


def dinov2() -> Any:
    return Dinov2Model(Dinov2Config(**COMMON, layerscale_value=0.3))


def dinov2_registers() -> Any:
    config = Dinov2WithRegistersConfig(**COMMON, num_register_tokens=3, layerscale_value=0.3)
    return Dinov2WithRegistersModel(config)


def resnet() -> Any:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    return ResNetModel(config)


def random_model(build: Callable[[], Any]) -> Any:
    """A model whose every weight and running statistic is random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = build()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand(tensor.shape, generator=rng))
    return model.eval()


def saved(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


def edit_json(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def load(name: str, download: bool = False) -> Backbone:
    settings = BackboneSettings(name=name, tail_inner=16, tail_mlp=16, tail_heads=2)
    return load_backbone(settings, download)


def pixels(size: int = SIZE) -> Tensor:
    rng = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (3, 3, size, size), generator=rng, dtype=torch.uint8)


@torch.no_grad()
def feature(backbone: Backbone, size: int = SIZE) -> Tensor:
    return torch.as_tensor(backbone.tail(backbone.trunk(pixels(size))))


@torch.no_grad()
def plain_feature(model: Any, statistics: Statistics = IMAGENET, size: int = SIZE) -> Tensor:
    """CLS after the final norm, or the mean of a convolutional network's last feature map."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in statistics)
    hidden: Tensor = model(pixel_values=(pixels(size).float() / 255 - mean) / std).last_hidden_state
    return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]


def refusal(name: str, download: bool = False) -> str:
    """The text of the error that loading `name` must raise."""
    with pytest.raises(GoalError) as caught:
        load(name, download)
    return str(caught.value)


@pytest.mark.parametrize("build", [vit, vit_with_pooler, dinov2, dinov2_registers, resnet])
def test_a_folders_feature_is_its_models(build: Callable[[], Any], tmp_path: Path) -> None:
    model = random_model(build)
    backbone = load(saved(model, tmp_path / "model"))
    size = 64 if build is resnet else SIZE
    assert torch.allclose(feature(backbone, size), plain_feature(model, size=size), atol=1e-5)


def test_a_pooler_does_not_change_the_name_of_the_trunk(tmp_path: Path) -> None:
    """The pooler is not used, so a bank built without it is a bank built with it."""
    model = random_model(vit_with_pooler)
    with_pooler = load(saved(model, tmp_path / "with"))
    model.pooler = None
    without = load(saved(model, tmp_path / "without"))
    assert with_pooler.trunk.fingerprint() == without.trunk.fingerprint()


def test_the_folders_own_pixel_statistics_are_used(tmp_path: Path) -> None:
    model = random_model(vit)
    name = saved(model, tmp_path)
    own = ((0.1, 0.2, 0.3), (0.6, 0.7, 0.8))
    edit_json(tmp_path / "preprocessor_config.json", image_mean=own[0], image_std=own[1])
    loaded = feature(load(name))
    assert torch.allclose(loaded, plain_feature(model, own), atol=1e-5)
    assert not torch.allclose(loaded, plain_feature(model), atol=1e-2)


def test_unreadable_pixel_statistics_are_not_replaced_silently(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.5')
    assert "preprocessor_config.json" in refusal(name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_computed_with_in_float32(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    model = random_model(vit).to(dtype)
    backbone = load(saved(model, tmp_path))
    assert len(backbone.trunk.fingerprint()) == 32
    assert torch.allclose(feature(backbone), plain_feature(model.float()), atol=1e-5)


def test_a_folder_without_config(tmp_path: Path) -> None:
    text = refusal(str(tmp_path))
    assert str(tmp_path) in text and "config.json" in text


def test_a_folder_without_weights(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    text = refusal(name)
    assert name in text and "model.safetensors" in text and "hf download" not in text


def test_an_unsupported_architecture_lists_the_supported_ones(tmp_path: Path) -> None:
    config = BertConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        vocab_size=10,
    )
    text = refusal(saved(BertModel(config), tmp_path))
    assert "'bert'" in text
    assert all(kind in text for kind in ("vit", "dinov2", "dinov2_with_registers", "resnet"))


def test_an_architecture_transformers_does_not_know(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    edit_json(tmp_path / "config.json", model_type="vit-of-tomorrow")
    text = refusal(name)
    assert name in text and "vit-of-tomorrow" in text


def test_missing_weights_are_named(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    [gone] = [
        key for key in weights if re.search(r"\.0\.(intermediate\.dense|mlp\.fc1)\.bias", key)
    ]
    del weights[gone]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    text = refusal(name)
    assert name in text and "layers.0.mlp.fc1.bias" in text


def test_weights_of_another_shape(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    edit_json(tmp_path / "config.json", intermediate_size=48)
    text = refusal(name)
    assert name in text and "fc1" in text


def test_weights_cut_short(tmp_path: Path) -> None:
    name = saved(random_model(vit), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert name in refusal(name)


def test_an_unknown_name_points_to_the_nearest() -> None:
    text = refusal("digit-vit")
    assert "'digit-vit'" in text and "Did you mean 'digits-vit'?" in text
    assert ".pth" in text and "folder" in text
    assert "Did you mean" not in refusal("xyzzy")


def test_a_missing_weight_file(tmp_path: Path) -> None:
    path = tmp_path / "dino_vitbase16_pretrain.pth"
    assert str(path) in refusal(str(path))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to reach another machine, each of which fails."""
    made: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        made.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return made


def test_a_hub_id_without_network_says_how_to_bring_it(
    attempts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    text = refusal("nobody-at-all/no-such-vit", download=True)
    assert "hf download nobody-at-all/no-such-vit --local-dir" in text
    assert "backbone.name" in text
    assert not attempts


def test_a_missing_network_is_told_once_and_without_retries(
    attempts: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))
    text = refusal("nobody-at-all/no-such-vit", download=True)
    assert "could not be fetched" in text and attempts
    assert capfd.readouterr() == ("", "") and not caplog.records


def test_a_hub_id_is_not_fetched_unasked(attempts: list[Any]) -> None:
    text = refusal("nobody-at-all/no-such-vit")
    assert "--download" in text and "--backbone FOLDER" in text
    assert not attempts
