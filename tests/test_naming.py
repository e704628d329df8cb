"""Names by a tiny CLIP with planted projections, so that the right answer is known."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image

from goal.errors import GoalError
from goal.naming import PROMPTS, Clip, read_names, suggest_names

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
WIDTH = 16


def plain(colour: str) -> Image.Image:
    return Image.new("RGB", (12, 12), COLOURS[colour])


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random CLIP whose text projection is solved so that names land on their images."""
    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters), ".</w>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    text = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 2, "vocab_size": len(tokens), "max_position_embeddings": 40}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.CLIPModel(config).eval()
    model.save_pretrained(folder)
    transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt")
    ).save_pretrained(folder)
    size = {"height": 8, "width": 8}
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size=size).save_pretrained(
        folder
    )
    plant(model, folder)
    return folder


def plant(model: transformers.CLIPModel, folder: Path) -> None:
    """Solve for a text projection that maps the hidden state of every name onto its image."""
    clip = Clip(folder)
    wanted = clip.embed_images([plain(colour) for colour in COLOURS])
    with torch.no_grad():
        hidden = []
        for colour in COLOURS:
            texts = [prompt.format(colour) for prompt in PROMPTS]
            batch = clip.tokenizer(texts, padding=True, return_tensors="pt")
            hidden.append(clip.model.text_model(**batch).pooler_output)
        targets = wanted.repeat_interleave(len(PROMPTS), dim=0)
        solution = torch.linalg.lstsq(torch.cat(hidden), targets).solution
        model.text_projection.weight.copy_(solution.T)
    model.save_pretrained(folder)


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
