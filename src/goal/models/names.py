"""Names for discovered classes: what a CLIP model says their images look like.

The mean image embedding of each class is compared with the text embeddings of candidate names.
Everything is read from a local folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor

from goal.backbone.pretrained import offline, quiet_transformers
from goal.common.errors import GoalError
from goal.data.listing import text_of
from goal.numerics.clustering import assign

PROMPTS = ("a photo of a {}.", "a picture of a {}.", "an image of a {}.")
_BATCH = 32


@dataclass(frozen=True)
class Suggestion:
    """What a class may be called.

    Attributes:
        name: The candidate it gets when no two classes may get the same; None when there are
            fewer candidates than classes and others fit better.
        likeliest: The best candidates with their cosines, best first, whatever others get.
    """

    name: str | None
    likeliest: tuple[tuple[str, float], ...]


class Clip:
    """A CLIP model from a local folder."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "config.json").is_file():
            raise GoalError(
                f"No CLIP model in {folder}: there is no config.json. On a machine with network "
                f"run `hf download openai/clip-vit-base-patch32 --local-dir FOLDER`, copy FOLDER "
                f"here, and give its path."
            )
        try:
            with quiet_transformers(), offline():
                config = transformers.AutoConfig.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
                if config.model_type != "clip":
                    raise GoalError(
                        f"{folder} holds a model of type {config.model_type}, not clip. Names need "
                        f"a model that embeds both images and text."
                    )
                self.model: Any = transformers.CLIPModel.from_pretrained(
                    folder, local_files_only=True, dtype=torch.float32
                ).eval()
                self.tokenizer: Any = transformers.CLIPTokenizer.from_pretrained(
                    folder, local_files_only=True
                )
                self.processor: Any = transformers.CLIPImageProcessorPil.from_pretrained(
                    folder, local_files_only=True
                )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise GoalError(f"Cannot load the CLIP model in {folder}: {error}") from error

    @torch.no_grad()
    def embed_images(self, images: Sequence[Image.Image]) -> Tensor:
        """Unit embeddings of images, (N, D)."""
        parts = [images[start : start + _BATCH] for start in range(0, len(images), _BATCH)]
        found = []
        for part in parts:
            rgb = [image.convert("RGB") for image in part]
            pixels = self.processor(images=rgb, return_tensors="pt")["pixel_values"]
            hidden = self.model.vision_model(pixel_values=pixels).pooler_output
            found.append(F.normalize(self.model.visual_projection(hidden), dim=1))
        return torch.cat(found)

    @torch.no_grad()
    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Unit embeddings of names, each the mean over the prompts, (C, D)."""
        found = []
        for name in names:
            texts = [prompt.format(name) for prompt in PROMPTS]
            tokens = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            hidden = self.model.text_model(
                input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
            ).pooler_output
            embedded = F.normalize(self.model.text_projection(hidden), dim=1)
            found.append(F.normalize(embedded.mean(dim=0), dim=0))
        return torch.stack(found)


def read_names(path: Path) -> list[str]:
    """Read candidate names, one per line; ``#`` starts a comment, repeated names count once."""
    try:
        lines = text_of(path).splitlines()
    except GoalError as error:
        raise GoalError(
            f"Cannot read the candidate names in {path}: {error} Give a text file, one per line."
        ) from error
    names = list(dict.fromkeys(filter(None, (line.split("#", 1)[0].strip() for line in lines))))
    if not names:
        raise GoalError(f"{path} has no candidate names. Write one per line.")
    return names


def suggest_names(
    images_of: Mapping[str, Sequence[Image.Image]],
    candidates: Path,
    clip_folder: Path,
    top: int = 3,
) -> dict[str, Suggestion]:
    """Suggest a name for every class.

    Args:
        images_of: Some images of each class, at least one (a few dozen are plenty).
        candidates: Text file of names to choose from, one per line.
        clip_folder: Folder of a transformers CLIP model.
        top: How many likely names to list.

    Returns:
        A suggestion for each class. The names given are the best one-to-one assignment over all
        classes together (Hungarian).
    """
    empty = [name for name, images in images_of.items() if not images]
    if empty:
        raise GoalError(
            f"There is no image of {', '.join(empty)}; give at least one of each class."
        )
    names = read_names(candidates)
    if not images_of:
        return {}
    clip = Clip(clip_folder)
    means = [clip.embed_images(images).mean(dim=0) for images in images_of.values()]
    cosines_KC = F.normalize(torch.stack(means), dim=1) @ clip.embed_names(names).T
    chosen = assign(cosines_KC).tolist()
    result = {}
    for label, own, row in zip(images_of, chosen, cosines_KC, strict=True):
        best = row.argsort(descending=True, stable=True)[:top].tolist()
        likeliest = tuple((names[index], float(row[index])) for index in best)
        result[label] = Suggestion(names[own] if own >= 0 else None, likeliest)
    return result
