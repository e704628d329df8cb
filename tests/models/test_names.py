"""Names for classes, by a tiny CLIP whose right answer is known."""

import json
from pathlib import Path

import pytest
import torch

from goal.common.errors import GoalError
from goal.models.names import PROMPTS, Clip, read_names, suggest_names
from tests.tiny_clip import COLOURS, plain, write_clip


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def names_file(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("# colours\nblue\ngreen  # grass\n\nred\nblue\n")
    return path


def test_planted_names_are_found(clip_folder: Path, names_file: Path) -> None:
    images = {f"new-{n}": [plain(c), plain(c)] for n, c in enumerate(("green", "blue", "red"))}
    found = suggest_names(images, names_file, clip_folder)
    assert [found[label].name for label in images] == ["green", "blue", "red"]
    for label, colour in zip(images, ("green", "blue", "red"), strict=True):
        listed = found[label].likeliest
        assert len(listed) == 3 and listed[0][0] == colour
        assert [cosine for _, cosine in listed] == sorted((c for _, c in listed), reverse=True)


def test_no_name_is_given_twice(clip_folder: Path, names_file: Path) -> None:
    found = suggest_names(
        {"a": [plain("red")], "b": [plain("red")]}, names_file, clip_folder, top=1
    )
    assert found["a"].name != found["b"].name
    assert found["a"].likeliest[0][0] == found["b"].likeliest[0][0] == "red"


def test_classes_may_outnumber_candidates(clip_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("red\n")
    found = suggest_names({"a": [plain("blue")], "b": [plain("red")]}, path, clip_folder)
    assert found["a"].name is None and found["b"].name == "red"


def test_embeddings_are_those_of_transformers(clip_folder: Path) -> None:
    clip = Clip(clip_folder)
    images = [plain(colour) for colour in COLOURS]
    with torch.no_grad():
        text = clip.tokenizer([PROMPTS[0].format("red")], return_tensors="pt")
        pixels = clip.processor(images=images, return_tensors="pt")
        expected = clip.model(**text, **pixels).image_embeds
    expected = torch.nn.functional.normalize(expected, dim=1)
    torch.testing.assert_close(clip.embed_images(images), expected, atol=1e-5, rtol=0)


def test_a_folder_without_a_model_is_named(tmp_path: Path, names_file: Path) -> None:
    with pytest.raises(GoalError, match=r"no config\.json.*hf download"):
        suggest_names({"a": [plain("red")]}, names_file, tmp_path)


def test_another_model_is_no_clip(tmp_path: Path, names_file: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(GoalError, match="type vit, not clip"):
        suggest_names({"a": [plain("red")]}, names_file, tmp_path)


def test_a_broken_model_is_an_error_with_its_folder(
    clip_folder: Path, tmp_path: Path, names_file: Path
) -> None:
    (tmp_path / "config.json").write_text((clip_folder / "config.json").read_text())
    with pytest.raises(GoalError, match="Cannot load the CLIP model"):
        suggest_names({"a": [plain("red")]}, names_file, tmp_path)


def test_candidates_are_read_and_checked(names_file: Path, tmp_path: Path) -> None:
    assert read_names(names_file) == ["blue", "green", "red"]
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(GoalError, match="no candidate names"):
        read_names(tmp_path / "empty.txt")
    with pytest.raises(GoalError, match="Cannot read"):
        read_names(tmp_path / "absent.txt")


def test_a_class_without_images_is_named(names_file: Path, tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="no image of b"):
        suggest_names({"a": [plain("red")], "b": []}, names_file, tmp_path)
