"""Files of tensors, read so that a small one cannot ask for much memory or time."""

import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

_MOST_NODES = 1_000_000


def load_tensors(stream: BinaryIO) -> Any:
    """Read what `torch.save` wrote: tensors and plain values, never code.

    Raises:
        ValueError: The content is larger than the file, or refers to itself over and over.
        Exception: Whatever torch raises on damaged bytes.
    """
    size = stream.seek(0, 2)
    stream.seek(0)
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise ValueError("it unpacks to more than it is, which torch's files do not")
    stream.seek(0)
    content = torch.load(stream, map_location="cpu", weights_only=True)
    _require_bounded(content)
    return content


def _require_bounded(content: Any) -> None:
    """Refuse tensors larger than their memory, and trees that are larger when gone through."""
    waiting, seen = [content], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if isinstance(node, Tensor):
            if node.layout is not torch.strided or node.nbytes > node.untyped_storage().nbytes():
                raise ValueError(
                    f"a tensor of shape {tuple(node.shape)} is larger than its content"
                )
        elif isinstance(node, Mapping):
            waiting.extend(node.values())
        elif isinstance(node, list | tuple):
            waiting.extend(node)
        if seen + len(waiting) > _MOST_NODES:
            raise ValueError(f"it holds more than {_MOST_NODES:,} values")
