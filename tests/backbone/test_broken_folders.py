"""Broken backbone folders: each a clear error for whoever loads them, whichever way."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from goal.backbone.features import load_embedder
from goal.backbone.load import load_backbone
from goal.backbone.trunk import BackboneSettings
from goal.common.errors import GoalError
from tests.backbone.test_load import edit_json, random_model, resnet, saved, vit

Break = Callable[[Path], object]


def config(**values: Any) -> Break:
    return lambda folder: edit_json(folder / "config.json", **values)


def processor(**values: Any) -> Break:
    return lambda folder: edit_json(folder / "preprocessor_config.json", **values)


def written(file: str, content: bytes) -> Break:
    return lambda folder: (folder / file).write_bytes(content)


def weights(change: Callable[[bytes], bytes]) -> Break:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return apply


def replaced(file: str, make: Callable[[Path], None]) -> Break:
    def apply(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return apply


def with_value(value: float) -> Break:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        next(iter(tensors.values())).view(-1)[0] = value
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def pickled_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": os.getcwd}))


def index_of_nothing(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))


BROKEN: dict[str, Break] = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "empty config": written("config.json", b""),
    "config cut short": written("config.json", b'{"model_type": "vit", '),
    "config is a list": written("config.json", b"[1, 2]"),
    "config is no text": written("config.json", b"\xff\xfe\x00"),
    "config nested without end": written("config.json", b'{"a":' * 100_000),
    "config is a folder": replaced("config.json", lambda path: path.mkdir()),
    "config is a pipe": replaced("config.json", lambda path: os.mkfifo(path)),
    "config is a link to nowhere": replaced("config.json", lambda path: path.symlink_to("gone")),
    "config is a device": replaced("config.json", lambda path: path.symlink_to("/dev/zero")),
    "no model type": written("config.json", b"{}"),
    "unknown model type": config(model_type="vit-of-tomorrow"),
    "model type is a number": config(model_type=3),
    "model type is a list": config(model_type=["vit"]),
    "hidden size is a text": config(hidden_size="wide"),
    "hidden size is null": config(hidden_size=None),
    "hidden size is negative": config(hidden_size=-16),
    "hidden size is zero": config(hidden_size=0),
    "hidden size is enormous": config(hidden_size=10**9, intermediate_size=10**9),
    "heads do not divide": config(num_attention_heads=3),
    "no heads": config(num_attention_heads=0),
    "patch size is zero": config(patch_size=0),
    "image size is negative": config(image_size=-16),
    "image size is enormous": config(image_size=10**8),
    "endless layers": config(num_hidden_layers=10**9),
    "layers are not a number": config(num_hidden_layers=float("nan")),
    "unknown activation": config(hidden_act="magic"),
    "mean of two": processor(image_mean=[0.5, 0.5]),
    "deviation is zero": processor(image_std=[0.0, 0.0, 0.0]),
    "deviation is NaN": processor(image_std=[float("nan")] * 3),
    "size is negative": processor(size={"shortest_edge": -1}),
    "size is a text": processor(size="large"),
    "processor is a list": written("preprocessor_config.json", b"[]"),
    "processor is a link to nowhere": lambda folder: (
        folder / "preprocessor_config.json"
    ).symlink_to("gone"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "empty weights": weights(lambda content: b""),
    "weights cut short": weights(lambda content: content[: len(content) // 2]),
    "weights too long": weights(lambda content: content + b"\0" * 1000),
    "weights claim an enormous header": weights(lambda content: b"\xff" * 8 + content[8:]),
    "weights are a folder": replaced("model.safetensors", lambda path: path.mkdir()),
    "weights are a pipe": replaced("model.safetensors", lambda path: os.mkfifo(path)),
    "weights hold NaN": with_value(float("nan")),
    "weights hold infinity": with_value(float("inf")),
    "an index of nothing": index_of_nothing,
    "a pickle": pickled_only,
}
LOADERS: dict[str, Callable[[str], object]] = {
    "trunk": lambda name: load_backbone(BackboneSettings(name=name)),
    "features": load_embedder,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(saved(random_model(vit), tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_folder_is_a_clear_error(kind: str, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backbone"
    folder.mkdir()
    for path in whole.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for load in LOADERS.values():
        load(str(folder))
    BROKEN[kind](folder)
    for load in LOADERS.values():
        with pytest.raises(GoalError) as caught:
            load(str(folder))
        assert str(folder) in str(caught.value) and len(str(caught.value)) < 1500


def test_running_statistics_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = random_model(resnet)
    model.embedder.embedder.normalization.running_var[0] = torch.nan
    name = saved(model, tmp_path)
    for load in LOADERS.values():
        with pytest.raises(GoalError, match="not finite numbers"):
            load(name)


def test_a_backbone_that_moved_says_how_to_go_on(tmp_path: Path) -> None:
    for name in (str(tmp_path / "gone"), str(tmp_path / "gone.pth")):
        for load in LOADERS.values():
            with pytest.raises(GoalError, match=r"moved, say where it is now: --backbone"):
                load(name)
