"""Sizes of one's own images come from the backbone, unless a person sets them."""

import json
from pathlib import Path
from typing import Any

import pytest

from goal.settings.plain import parse_assignments
from goal.settings.settings import Settings, compose

OWN = {"data": {"name": "folder"}}


@pytest.fixture
def backbone(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "image_size": 16}))
    return str(tmp_path)


def sizes(settings: Settings) -> tuple[int, int]:
    return settings.transform.image_size, settings.transform.resize


def own(name: str, *assignments: str, **transform: Any) -> tuple[int, int]:
    layer = OWN | {"backbone": {"name": name}, "transform": transform}
    return sizes(compose(layer, parse_assignments(assignments)))


def test_the_backbones_own_size_is_taken(backbone: str) -> None:
    assert own(backbone) == (16, 18)
    assert own("digits-vit") == (16, 18)


def test_what_a_person_sets_wins(backbone: str) -> None:
    assert own(backbone, image_size=32, resize=40) == (32, 40)
    assert own(backbone, "transform.image_size=14") == (14, 16)
    assert own(backbone, "transform.resize=12") == (12, 12)
    assert own(backbone, "transform.resize=30") == (16, 30)


def test_a_preprocessor_goes_before_the_config(backbone: str) -> None:
    named = {"size": {"shortest_edge": 28}, "crop_size": {"height": 20, "width": 20}}
    (Path(backbone) / "preprocessor_config.json").write_text(json.dumps(named))
    assert own(backbone) == (20, 28)


def test_published_sizes_stay(backbone: str) -> None:
    for dataset, expected in (("cifar100", (224, 256)), ("digits", (16, 18))):
        layer = {"data": {"name": dataset}, "backbone": {"name": backbone}}
        assert sizes(compose(layer)) == expected


def test_settings_that_were_written_do_not_ask_the_backbone_again(backbone: str) -> None:
    written = compose(OWN | {"backbone": {"name": backbone}})
    (Path(backbone) / "config.json").write_text(json.dumps({"model_type": "vit", "image_size": 8}))
    assert compose(written.plain()) == written
