"""Checkpoints: whole or absent, verified when read, and never able to run code."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goal.common.errors import GoalError
from goal.common.tensor_files import load_tensors
from goal.storage.files import opened, require_format, write_bytes

FORMAT = 1


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a tree of tensors, numbers, strings, lists and dicts in one atomic step."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "digest": digest(state), "state": dict(state)}, buffer)
    write_bytes(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or raise an error that says what is wrong with it."""
    advice = "Restore the file from a copy, or start the run again in a new folder."
    with opened(path) as stream:
        try:
            content = dict(load_tensors(stream))
            version, expected, state = content["format"], content["digest"], content["state"]
            found = digest(state)
        except OSError as error:
            raise GoalError(f"Cannot read the checkpoint {path}: {error}") from error
        except Exception as error:  # torch.load raises almost anything on damaged bytes
            raise GoalError(f"The checkpoint {path} is damaged ({error}). {advice}") from error
    require_format(version, FORMAT, path)
    if found != expected:
        raise GoalError(f"The checkpoint {path} is damaged: its checksum is wrong. {advice}")
    if not isinstance(state, dict):
        raise GoalError(f"The checkpoint {path} is damaged: it holds no state. {advice}")
    return state


def damage(path: Path) -> list[str]:
    """What is wrong with a checkpoint; nothing if all is well."""
    try:
        load(path)
    except GoalError as error:
        return [str(error)]
    return []


def digest(state: Any) -> str:
    """Hash of the tree: kinds, sizes, keys and leaves, so that no two trees share one."""
    result = hashlib.sha256()
    for piece in _pieces(state):
        result.update(len(piece).to_bytes(8))
        result.update(piece)
    return result.hexdigest()


def _pieces(node: Any) -> Iterator[bytes]:
    if isinstance(node, Mapping):
        yield f"mapping {len(node)}".encode()
        for key, value in node.items():
            yield repr(key).encode()
            yield from _pieces(value)
    elif isinstance(node, (list, tuple)):
        yield f"{type(node).__name__} {len(node)}".encode()
        for value in node:
            yield from _pieces(value)
    elif isinstance(node, Tensor):
        yield f"{node.dtype} {tuple(node.shape)}".encode()
        flat = node.detach().cpu().contiguous().flatten()
        yield flat.view(torch.uint8).numpy().tobytes()
    else:
        yield repr(node).encode()
