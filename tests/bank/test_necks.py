"""A neck is fitted on stage 0, once, and shared by later runs."""

from pathlib import Path

import pytest
import torch
from transformers import ResNetConfig, ResNetModel

from goal.bank import necks
from goal.runs.run import start
from goal.settings.settings import compose


def resnet_folder(place: Path) -> Path:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ResNetModel(config).save_pretrained(place)
    return place


def test_runs_share_the_neck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = compose(
        {
            "data": {"name": "digits"},
            "method": {"name": "kmeans"},
            "protocol": {"train_per_class": 20, "test_per_class": 5},
            "transform": {"image_size": 32, "resize": 32},
            "backbone": {
                "name": str(resnet_folder(tmp_path / "resnet")),
                "neck": 6,
                "tail_inner": 8,
                "tail_mlp": 8,
                "tail_heads": 2,
            },
            "bank": {"views": 1},
        }
    )
    first = start(settings, tmp_path / "first")
    monkeypatch.setattr(necks, "clean", None)  # fitting again would call it
    second = start(settings, tmp_path / "second")
    assert first["final"] == second["final"]
    results = [(tmp_path / name / "results.jsonl").read_bytes() for name in ("first", "second")]
    assert results[0] == results[1]
