"""A method with its trunk as one ONNX graph: images in, class scores and probabilities out.

Resizing, cutting, normalisation, trunk, tail and classifier are inside; who uses the graph decodes
a file to RGB, and that is all.
"""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from goal import __version__
from goal.backbone.tokens import device_of
from goal.common.errors import GoalError
from goal.methods.base import Method
from goal.models.resampling import CentreCut
from goal.storage.files import replacing

_LARGEST_BATCH = 1024  # some methods go through larger ones in pieces, which one graph cannot


class _Graph(nn.Module):
    """From images as they are decoded to scores and probabilities of classes."""

    def __init__(
        self, trunk: nn.Module, method: Method, cut: CentreCut, owner: Sequence[int | None]
    ) -> None:
        super().__init__()
        self.cut = cut
        self.trunk = trunk
        self.method = method
        roots = sorted({id for id in owner if id is not None})
        self.members = [[id for id, own in enumerate(owner) if own == root] for root in roots]

    def forward(self, pixels_BHW3: Tensor) -> tuple[Tensor, Tensor]:
        """Score images: the best score among the classes merged into one, (B, C) both."""
        outputs = self.method.infer(self.trunk(self.cut(pixels_BHW3)))
        scores = self.method.class_scores(outputs)
        columns = [scores[:, members].amax(dim=1) for members in self.members]
        merged = torch.stack(columns, dim=1)
        return merged, self.method.probabilities(merged)


def export_onnx(
    trunk: nn.Module,
    method: Method,
    class_names: Sequence[str],
    cut: CentreCut,
    path: Path,
    owner: Sequence[int | None] | None = None,
) -> None:
    """Write a model as an ONNX file for batches of 1 to 1024 images.

    Input ``pixels``: uint8, (B, H, W, 3), RGB, of any size, one size per batch. Outputs
    ``scores`` and ``probabilities``: (B, C), a column per class; the highest is the class.
    Metadata: ``class_names`` and ``class_ids`` (JSON lists, a column each), ``input`` and
    ``outputs`` (what they are, in words), and ``goal_version``.

    Args:
        trunk: The frozen network before the method: gives tokens.
        method: The method.
        class_names: One name per class that is not merged into another.
        cut: How images are cut to size.
        path: File to write.
        owner: For each class of the method, the class it counts as, None for none of
            them; by default itself.

    Raises:
        GoalError: If a package is missing, or the names do not fit.
    """
    _require_packages()
    device = device_of(method)
    owner = range(method.num_classes) if owner is None else owner
    graph = _Graph(trunk.cpu(), method.cpu(), cut, owner).eval()
    shorter = cut.resize + 3
    example = torch.zeros(2, shorter, shorter + 2, 3, dtype=torch.uint8)
    with torch.no_grad():
        count = graph(example)[0].shape[1]
    if len(class_names) != count:
        raise GoalError(f"{len(class_names)} class names for {count} classes: give one each.")
    metadata = {
        "class_names": json.dumps(list(class_names)),
        "class_ids": json.dumps(sorted({id for id in owner if id is not None})),
        "input": "pixels: uint8, batch x height x width x 3, RGB, upright",
        "outputs": (
            "scores and probabilities: batch x classes, a column for each of class_names. "
            "probabilities sum to 1; scores are what they are made from, on the method's own "
            "scale. The highest column is the class. Of classes merged into one, the best counts."
        ),
        "goal_version": __version__,
    }
    _write(graph, example, metadata, path)
    trunk.to(device)
    method.to(device)


def _require_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise GoalError(
            f"Exporting needs {' and '.join(missing)}, which are not installed. "
            f"Install them by `pip install 'goal-cgcd[onnx]'`."
        )


def _write(graph: nn.Module, example: Tensor, metadata: dict[str, str], path: Path) -> None:
    batch = Dim("batch", min=1, max=_LARGEST_BATCH)
    with _quiet_exporter():
        program: Any = torch.onnx.export(
            graph,
            (example,),
            input_names=["pixels"],
            output_names=["scores", "probabilities"],
            dynamic_shapes={"pixels_BHW3": {0: batch, 1: Dim("height"), 2: Dim("width")}},
            dynamo=True,
            verbose=False,
        )
    proto: Any = program.model_proto
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as stream:
        stream.write(proto.SerializeToString())


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep torch's remarks to itself: that torchvision is not there, what it deprecates inside."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        log.setLevel(before)
