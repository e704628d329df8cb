"""Predictions for other tools, against files written by hand after their public formats."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.models.classes import Roster
from goal.models.history import Judgement
from goal.models.manifests import (
    MANIFESTS,
    coco,
    fiftyone,
    label_studio,
    label_studio_config,
    write_manifest,
)
from goal.models.predictions import Predictions
from goal.models.records import StageRecord


def stage(index: int, names: list[str], known: int) -> StageRecord:
    return StageRecord(
        kind="discover" if index else "fit",
        step=index,
        index=index,
        created="2026-01-01T00:00:00+00:00",
        version="0",
        key="",
        num_known=known,
        names=names,
        vertices=[None] * len(names),
        trunk="t",
    )


# Class 1 is merged into 0, so that positions among the classes and ids differ.
RECORDS = [stage(0, ["cat", "kitten", "dog"], 0), stage(1, ['a "fox" & co', "new-2"], 3)]
ROSTER = Roster(RECORDS, Judgement(merged={"1": 0}))


def predictions(*names: str) -> Predictions:
    ids = np.array([2, 3, 0][: len(names)], dtype=np.int64)
    return Predictions(
        list(names), ids, np.array([0.5, 0.87654321, 1.0])[: len(ids)], ROSTER, 1, []
    )


FOUND = predictions("/shop/a.jpg", "/shop/week 1/b.png", "/shop/week 1/../ü.jpg")

FIFTYONE = """
{"classes": ["cat", "dog", "a \\"fox\\" & co", "new-2"],
 "labels": {
  "a": {"label": 1, "confidence": 0.5, "attributes": {"new": false, "stage": 0}},
  "week 1/b": {"label": 2, "confidence": 0.876543, "attributes": {"new": true, "stage": 1}},
  "ü": {"label": 0, "confidence": 1.0, "attributes": {"new": false, "stage": 0}}}}
"""

COCO = """
{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "week 1/b.png"},
            {"id": 3, "file_name": "ü.jpg"}],
 "categories": [{"id": 0, "name": "cat", "supercategory": "base"},
                {"id": 2, "name": "dog", "supercategory": "base"},
                {"id": 3, "name": "a \\"fox\\" & co", "supercategory": "novel"},
                {"id": 4, "name": "new-2", "supercategory": "novel"}],
 "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "score": 0.5},
                 {"id": 2, "image_id": 2, "category_id": 3, "score": 0.876543},
                 {"id": 3, "image_id": 3, "category_id": 0, "score": 1.0}]}
"""

LABEL_STUDIO = """
[{"data": {"image": "/data/local-files/?d=a.jpg"},
  "predictions": [{"model_version": "stage 1", "score": 0.5, "result": [
   {"id": "goal-1", "type": "choices", "from_name": "class", "to_name": "image",
    "value": {"choices": ["dog"]}}]}]},
 {"data": {"image": "/data/local-files/?d=week%201/b.png"},
  "predictions": [{"model_version": "stage 1", "score": 0.876543, "result": [
   {"id": "goal-2", "type": "choices", "from_name": "class", "to_name": "image",
    "value": {"choices": ["a \\"fox\\" & co"]}}]}]},
 {"data": {"image": "/data/local-files/?d=%C3%BC.jpg"},
  "predictions": [{"model_version": "stage 1", "score": 1.0, "result": [
   {"id": "goal-3", "type": "choices", "from_name": "class", "to_name": "image",
    "value": {"choices": ["cat"]}}]}]}]
"""

EXPECTED = {"fiftyone": FIFTYONE, "coco": COCO, "label-studio": LABEL_STUDIO}


@pytest.mark.parametrize("kind", sorted(MANIFESTS))
def test_the_file_is_as_its_format_says(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.json"
    write_manifest(FOUND, path, kind, Path("/shop"))
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(EXPECTED[kind])


def test_without_a_folder_paths_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = predictions("week/a.jpg", "week/a.png")
    whole = [f"{tmp_path.as_posix()}/week/a.jpg", f"{tmp_path.as_posix()}/week/a.png"]
    assert list(fiftyone(found)["labels"]) == whole
    assert [image["file_name"] for image in coco(found)["images"]] == whole
    tasks = label_studio(found)
    asked = [parse_qs(urlsplit(task["data"]["image"]).query)["d"][0] for task in tasks]
    assert [f"/{name}" for name in asked] == whole


def test_names_with_signs_of_addresses_survive() -> None:
    (task,) = label_studio(predictions("/shop/50% & more?#1+1.jpg"), Path("/shop"))
    address = urlsplit(task["data"]["image"])
    assert parse_qs(address.query) == {"d": ["50% & more?#1+1.jpg"]} and not address.fragment


def test_fiftyone_never_takes_two_images_for_one() -> None:
    with pytest.raises(GoalError, match=r"a\.jpg and /shop/a\.png for one image"):
        fiftyone(predictions("/shop/a.jpg", "/shop/a.png"), Path("/shop"))
    assert list(fiftyone(predictions("/shop/a.jpg", "/shop/a.jpg"), Path("/shop"))["labels"]) == [
        "a"
    ]


@pytest.mark.parametrize("kind", sorted(MANIFESTS))
def test_an_image_outside_the_folder_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="does not lie in /shop"):
        write_manifest(predictions("/shop/../a.jpg"), tmp_path / "x.json", kind, Path("/shop"))
    assert not (tmp_path / "x.json").exists()


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match=r"'coca'. Did you mean 'coco'"):
        write_manifest(FOUND, tmp_path / "x.json", "coca")


def test_the_configuration_offers_every_class_that_tasks_name() -> None:
    view = ElementTree.fromstring(label_studio_config(ROSTER))
    (image,), (choices,) = view.findall("Image"), view.findall("Choices")
    offered = [choice.get("value") for choice in choices]
    assert offered == ["cat", "dog", 'a "fox" & co', "new-2"]
    for task in label_studio(FOUND):
        (result,) = task["predictions"][0]["result"]
        assert result["from_name"] == choices.get("name")
        assert result["to_name"] == image.get("name") == choices.get("toName")
        assert image.get("value") == "$" + "".join(task["data"])
        assert set(result["value"]["choices"]) <= set(offered)
