"""What this machine can do: versions, device, memory, disk, and what is at hand."""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache
from rich.filesize import decimal

from goal import __version__
from goal.backbone.names import BACKBONES, EMBEDDED
from goal.bank.bank import BankSettings, bank_root
from goal.bank.shelf import inspect
from goal.cli.tools import installed
from goal.common.wording import counted
from goal.data.sets import cifar100, cub, imagenet100, tinyimagenet
from goal.storage.cache import cache_folder

_PACKAGES = ("torch", "transformers", "numpy", "scikit-learn", "pillow", "pyarrow")
_EXTRAS = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
}


def examine(data_root: Path = Path("data")) -> Iterator[tuple[str, str]]:
    """Say, topic by topic, what was found."""
    yield "goal", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield "packages", ", ".join(f"{name} {installed(name)}" for name in _PACKAGES)
    yield "device", _device()
    yield "CPU", _processors()
    yield "memory", _memory()
    cache = cache_folder()
    yield "disk here", f"{decimal(shutil.disk_usage(Path.cwd()).free)} free"
    yield "cache", f"{cache}: {decimal(shutil.disk_usage(_existing(cache)).free)} free"
    used = sum(shelf.size for shelf in inspect(bank_root(BankSettings())))
    yield "token bank", f"holds {decimal(used)}"
    for name in BACKBONES:
        yield f"backbone {name}", _backbone(name)
    for name, module in (
        ("cifar100", cifar100),
        ("tinyimagenet", tinyimagenet),
        ("imagenet100", imagenet100),
        ("cub", cub),
    ):
        places = (data_root / module.SOURCE.folder, data_root)
        found = [place for place in places if not module.SOURCE.missing(place)]
        yield f"dataset {name}", str(found[0]) if found else f"not in {data_root}"
    yield "dataset digits", "embedded"
    for extra, modules in _EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        advice = f"not installed: pip install 'goal-cgcd[{extra}]'"
        yield f"extra {extra}", advice if missing else "installed"


def _device() -> str:
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        listed = ", ".join(f"{card.name} ({decimal(card.total_memory)})" for card in cards)
        return f"cuda: {listed}; use it by --device cuda"
    if torch.backends.mps.is_available():
        return "mps; use it by --device mps"
    return "cpu only"


def _processors() -> str:
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    return f"{counted(cores, 'core')}, torch uses {counted(threads, 'thread')}"


def _memory() -> str:
    """Physical memory, where the system tells."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_AVPHYS_PAGES" not in names:
        return "unknown on this system"
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    return f"{decimal(total)}, {decimal(free)} unused"


def _existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _backbone(name: str) -> str:
    if name == EMBEDDED:
        return "embedded"
    here = isinstance(try_to_load_from_cache(name, "config.json"), str)
    return "on this machine" if here else "fetched from the hub on first use"
