"""Pretrained networks by name, folder or file, as they are: nothing is run that came with them."""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from torch import nn

from goal.backbone.dino_pth import load_dino_pth
from goal.backbone.names import BACKBONES, EMBEDDED
from goal.backbone.preprocessing import Preprocessing, read_preprocessing
from goal.common.errors import GoalError, did_you_mean
from goal.common.escaping import visible
from goal.common.section import shorten

_MOST_JSON_BYTES = 16_000_000
_MOST_LAYERS = 1000
_HUB_ID = r"[\w-][\w.-]*/[\w-][\w.-]*"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_SECONDS_TO_ANSWER = 10.0


@dataclass(frozen=True)
class Pretrained:
    """A network, how it wants its images, and which of its weights its file did not hold."""

    name: str
    model: Any
    preprocessing: Preprocessing
    missing: frozenset[str] = frozenset()

    def require_weights(self) -> None:
        """Raise an error if a weight that the network still has was not in its file, or is NaN."""
        kept = self.model.state_dict()
        if wrong := sorted(self.missing & kept.keys()):
            raise GoalError(
                f"The weights of {self.name} are incomplete or of another shape than its "
                f"config.json says: {', '.join(wrong[:5])}. Fetch the backbone anew."
            )
        for key, tensor in kept.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise GoalError(
                    f"The weights of {self.name} are damaged: {key} holds values that are not "
                    f"finite numbers. Fetch the backbone anew."
                )


def load_pretrained(name: str, download: bool = False) -> Pretrained:
    """Load the network that a name stands for, in float32.

    Args:
        name: An embedded backbone, a transformers folder, a DINO ``.pth`` file, or a hub id.
        download: Whether a hub id that is not on this machine may be fetched.
    """
    path = Path(name)
    if name == EMBEDDED:
        with as_file(files("goal.backbone") / "embedded" / name) as folder:
            return _from_folder(name, folder)
    if path.suffix == ".pth":
        return _from_pth(path)
    if path.is_dir():
        return _from_folder(name, path)
    if not re.fullmatch(_HUB_ID, name):
        raise GoalError(
            f"Unknown backbone '{visible(shorten(name))}'.{did_you_mean(name, BACKBONES)} Give a "
            f"hub id such as facebook/dino-vitb16, a transformers folder, a DINO .pth file, or "
            f"'{EMBEDDED}'. If the folder has moved, say where it is now: --backbone FOLDER."
        )
    return _from_folder(name, _hub_folder(name, download))


def peek_preprocessing(name: str) -> Preprocessing | None:
    """Read how a backbone wants its images without loading it; None if it is not here to ask."""
    folder = Path(name)
    if name == EMBEDDED:
        with as_file(files("goal.backbone") / "embedded" / name) as embedded:
            return _folder_preprocessing(name, embedded)[1]
    if not folder.is_dir() and re.fullmatch(_HUB_ID, name):
        try:
            folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        except Exception:  # not on this machine
            return None
    if not (folder / "config.json").is_file():
        return None
    return _folder_preprocessing(name, folder)[1]


def _folder_preprocessing(name: str, folder: Path) -> tuple[dict[str, Any], Preprocessing]:
    config = _read_json(folder / "config.json")
    return config, read_preprocessing(config, _processor(folder), name)


def _from_pth(path: Path) -> Pretrained:
    if not path.is_file():
        raise GoalError(
            f"No such weight file: {path}. If it has moved, say where it is now: --backbone FILE."
        )
    model = load_dino_pth(path)
    found = Pretrained(str(path), model, read_preprocessing(model.config.to_dict(), {}, str(path)))
    found.require_weights()
    return found


def _hub_folder(name: str, download: bool) -> Path:
    """Find the folder of a hub id on this machine, or fetch it: a complete one, without a word."""
    cause: Exception | None = None
    with quiet_transformers():
        try:
            folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
            if _has_weights(folder):
                return folder
        except Exception as error:  # the library raises almost anything, network errors included
            cause = error
        if not download:
            raise GoalError(
                f"The backbone '{name}' is not on this machine, and nothing was fetched because "
                f"this command was not asked to: give --download, or run `hf download {name} "
                f"--local-dir FOLDER` on a machine with network and give --backbone FOLDER."
            ) from cause
        try:
            return _fetch(name)
        except Exception as error:
            raise GoalError(
                f"Cannot load the backbone '{name}': it is not on this machine and could not be "
                f"fetched. On a machine with network run `hf download {name} --local-dir FOLDER`, "
                f"copy FOLDER here, and give its path as backbone.name. ({type(error).__name__})"
            ) from error


def _fetch(name: str) -> Path:
    """Fetch configuration and weights; one short question first tells soon of a missing network."""
    about = huggingface_hub.HfApi().model_info(name, timeout=_SECONDS_TO_ANSWER)
    names = [entry.rfilename for entry in about.siblings or () if "/" not in entry.rfilename]
    safe = [file for file in names if ".safetensors" in file and file.startswith("model")]
    weights = safe or [file for file in names if file.startswith("pytorch_model")]
    wanted = [*weights, "config.json", "preprocessor_config.json", "processor_config.json"]
    return Path(huggingface_hub.snapshot_download(name, revision=about.sha, allow_patterns=wanted))


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(
        (folder / file).is_file() for file in (*_WEIGHTS, *_PICKLED)
    )


def _from_folder(name: str, folder: Path) -> Pretrained:
    """Load a transformers folder, whoever made it."""
    if not os.path.lexists(folder / "config.json"):
        raise GoalError(f"{name} is not a transformers model folder: it has no config.json.")
    config, preprocessing = _folder_preprocessing(name, folder)
    _check_layers(config, name)
    _check_kernels(config, name)
    size = _weight_bytes(folder, name)
    try:
        with quiet_transformers() as transformers, offline():
            _check_parameters(folder, size, name)
            model, info = transformers.AutoModel.from_pretrained(
                folder,
                output_loading_info=True,
                trust_remote_code=False,
                local_files_only=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # reported by name, by `require_weights`
            )
    except GoalError:
        raise
    except Exception as error:  # whatever a broken file leads transformers to
        raise GoalError(
            f"Cannot load the backbone in {name}: {_told(error)} Check config.json and the "
            f"weights, or fetch the backbone anew."
        ) from error
    mismatched = {str(entry[0]) for entry in info["mismatched_keys"]}
    missing = frozenset({str(key) for key in info["missing_keys"]} | mismatched)
    if not isinstance(model, nn.Module):
        raise GoalError(f"{name} holds no network.")
    return Pretrained(name, model.eval().requires_grad_(False), preprocessing, missing)


def _told(error: Exception) -> str:
    text = visible(shorten(" ".join(str(error).split()), 400))
    return f"{text or type(error).__name__}{'' if text.endswith('.') else '.'}"


def _processor(folder: Path) -> dict[str, Any]:
    """The image processor's settings, wherever the folder keeps them; empty if nowhere."""
    if os.path.lexists(folder / "preprocessor_config.json"):
        return _read_json(folder / "preprocessor_config.json")
    if os.path.lexists(folder / "processor_config.json"):
        inner = _read_json(folder / "processor_config.json").get("image_processor", {})
        return inner if isinstance(inner, dict) else {}
    return {}


def _read_json(path: Path) -> dict[str, Any]:
    """Read a file that should hold a JSON object of reasonable size."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise GoalError(f"{path} is not a regular file. Fetch the backbone anew.")
        if facts.st_size > _MOST_JSON_BYTES:
            raise GoalError(f"{path} is too large for a configuration. Fetch the backbone anew.")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise GoalError(
            f"Cannot read {path}: {_told(error)} Correct it or fetch the backbone anew."
        ) from error
    if not isinstance(content, dict):
        raise GoalError(f"{path} holds no JSON object. Correct it or fetch the backbone anew.")
    return content


def _check_layers(config: Any, name: str) -> None:
    """Refuse networks so deep that merely building their layers would never end."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, name)
        elif "layers" in key or "depth" in key:
            counts = value if isinstance(value, list) else [value]
            numbers = [count for count in counts if isinstance(count, int | float)]
            if len(counts) > _MOST_LAYERS or any(not abs(n) <= _MOST_LAYERS for n in numbers):
                raise GoalError(
                    f"The config.json of {name} says {key} = {shorten(repr(value), 80)}; more than "
                    f"{_MOST_LAYERS} layers are not built. Correct it or fetch the backbone anew."
                )


def _check_kernels(config: Any, name: str) -> None:
    """Refuse compiled code of somebody's: an implementation that is named by a hub id."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_kernels(value, name)
        elif "implementation" in key and not re.fullmatch(r"\w+|None", str(value)):
            raise GoalError(
                f"The config.json of {name} says {visible(key)} = "
                f"{visible(shorten(repr(value), 80))}: code from elsewhere, which is not run. "
                f"Remove it there, or fetch the backbone anew."
            )


def _weight_bytes(folder: Path, name: str) -> int:
    """Size of all weight files; an error if there are none, or ones that are no files."""
    found = [path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")]
    if not found:
        raise GoalError(f"{name} holds no weights: there is no {_WEIGHTS[0]} in it.")
    for path in found:
        if not path.is_file():
            raise GoalError(f"{path} is not a regular file. Fetch the backbone anew.")
    return sum(path.stat().st_size for path in found)


def _check_parameters(folder: Path, weight_bytes: int, name: str) -> None:
    """Refuse a configuration that asks for far more memory than the weights could ever fill."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > 2 * weight_bytes + 1_000_000:
        raise GoalError(
            f"The config.json of {name} describes a network of {count:,} parameters, but its "
            f"weight files hold {weight_bytes:,} bytes. Correct it or fetch the backbone anew."
        )


@contextmanager
def offline() -> Iterator[None]:
    """Keep the hub's library from the network, whatever a folder's files name besides."""
    constants = huggingface_hub.constants
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Give transformers, with warnings and bars of it and the hub silenced: we report ourselves.

    It is slow to import, and only loading a backbone needs it.
    """
    import transformers

    theirs = (transformers.utils.logging, huggingface_hub.utils.logging)
    before = [logging.get_verbosity() for logging in theirs]
    bars = transformers.utils.logging.is_progress_bar_enabled()
    for logging in theirs:
        logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        for logging, verbosity in zip(theirs, before, strict=True):
            logging.set_verbosity(verbosity)
        if bars:
            transformers.utils.logging.enable_progress_bar()
