"""A tree of tensors and plain values as safetensors beside JSON: for files that strangers read.

Nothing is pickled, and what comes back is the very tree: kinds, keys, order and every bit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from goal.common.errors import GoalError
from goal.storage.checkpoint import digest


def packed(state: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the tensors of a tree as safetensors, and all else of it as plain JSON values."""
    tensors: dict[str, Tensor] = {}
    tree = _plain(state, "", tensors)
    return safetensors.torch.save(tensors), {"tree": tree, "digest": digest(state)}


def unpacked(content: bytes, plain: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Put a tree together again.

    Args:
        content: The safetensors.
        plain: The rest, from `packed`.
        path: Where the tensors came from, for messages.

    Raises:
        GoalError: The two do not belong together, or a byte of them has changed.
    """
    try:
        state = _whole(plain["tree"], safetensors.torch.load(content))
        held = digest(state) == plain["digest"]
    except Exception as error:  # damaged bytes raise almost anything
        raise GoalError(f"{path} is damaged ({error}). Fetch it again.") from error
    if not held or not isinstance(state, dict):
        raise GoalError(f"{path} is damaged: its checksum is wrong. Fetch it again.")
    return state


def _plain(node: Any, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A node without its tensors, which go into `tensors` by name."""
    if isinstance(node, Tensor):
        tensors[name] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(node, Mapping):
        pairs = [[key, _plain(value, _below(name, key), tensors)] for key, value in node.items()]
        return {"mapping": pairs}
    if isinstance(node, list | tuple):
        items = [_plain(value, _below(name, at), tensors) for at, value in enumerate(node)]
        return {type(node).__name__: items}
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    raise TypeError(f"{name} is a {type(node).__name__}, which has no plain form")


def _below(name: str, key: object) -> str:
    return f"{name}/{key}" if name else str(key)


def _whole(node: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    (kind, content), *more = node.items()
    if more:
        raise ValueError("a node of the tree is of two kinds")
    match kind:
        case "tensor":
            return tensors[content]
        case "mapping":
            return {key: _whole(value, tensors) for key, value in content}
        case "list":
            return [_whole(value, tensors) for value in content]
        case "tuple":
            return tuple(_whole(value, tensors) for value in content)
        case "value":
            return content
    raise ValueError(f"{kind} is no kind of node")
