"""A tiny CLIP with planted projections: it knows the names of three colours."""

import json
from pathlib import Path

import torch
import transformers
from PIL import Image

from goal.models.names import PROMPTS, Clip

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
WIDTH = 16


def plain(colour: str) -> Image.Image:
    """Return an image of one colour."""
    return Image.new("RGB", (12, 12), COLOURS[colour])


def write_clip(folder: Path) -> Path:
    """Write a random CLIP whose text projection is solved so that names land on their images."""
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
