"""A method with its trunk as one ONNX graph: pixels in, class scores out.

The graph takes uint8 pixels of images that are already resized and cut to size: a batch has one
shape, while files have many, and Pillow rounds to whole pixel values between its two passes of
resampling, which ONNX's Resize does not. Normalisation, trunk, tail and classifier are inside. Its
metadata says how to cut images and what the classes are called.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from goal import __version__
from goal.backbone import Trunk
from goal.data.transforms import TransformSettings
from goal.errors import GoalError
from goal.files import replacing
from goal.methods.base import Method

Layout = Literal["NHWC", "NCHW"]
_LARGEST_BATCH = 1024  # some methods go through larger ones in pieces, which one graph cannot


class _Graph(nn.Module):
    """From uint8 pixels to class scores."""

    def __init__(self, trunk: Trunk, method: Method, layout: Layout) -> None:
        super().__init__()
        self.trunk = trunk
        self.method = method
        self.layout = layout

    def forward(self, pixels: Tensor) -> Tensor:
        """Score images, (B, K)."""
        if self.layout == "NHWC":
            pixels = pixels.permute(0, 3, 1, 2)
        return self.method.class_scores(self.method.infer(self.trunk(pixels)))


def export_onnx(
    trunk: Trunk,
    method: Method,
    class_names: Sequence[str],
    transform: TransformSettings,
    path: Path,
    layout: Layout = "NHWC",
) -> None:
    """Write a model as an ONNX file for batches of 1 to 1024 images.

    Input ``pixels``: uint8, (B, S, S, 3) or (B, 3, S, S) by `layout`. Output ``scores``: (B, K);
    the highest is the class. Metadata: ``class_names`` (a JSON list), ``image_size``, ``resize``
    and ``resample`` (shorter side first resized to `resize`, then the centre cut out), ``layout``
    and ``goal_version``.

    Args:
        trunk: The frozen trunk.
        method: The method.
        class_names: One name per class.
        transform: How images are cut to size.
        path: File to write.
        layout: Order of the input's axes.

    Raises:
        GoalError: If a package is missing, or the names do not fit.
    """
    _require_packages()
    size = transform.image_size
    shape = (2, size, size, 3) if layout == "NHWC" else (2, 3, size, size)
    example = torch.zeros(shape, dtype=torch.uint8)
    device = next(method.parameters()).device
    trunk, method = trunk.cpu().eval(), method.cpu().eval()
    with torch.no_grad():
        outputs = method.infer(trunk(torch.zeros(2, 3, size, size, dtype=torch.uint8)))
        count = method.class_scores(outputs).shape[1]
    if len(class_names) != count:
        raise GoalError(f"{len(class_names)} class names for {count} classes: give one each.")
    metadata = {
        "class_names": json.dumps(list(class_names)),
        "image_size": str(size),
        "resize": str(transform.resize),
        "resample": "bicubic",
        "layout": layout,
        "goal_version": __version__,
    }
    _write(_Graph(trunk, method, layout), example, metadata, path)
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
    program: Any = torch.onnx.export(
        graph.eval(),
        (example,),
        input_names=["pixels"],
        output_names=["scores"],
        dynamic_shapes={"pixels": {0: torch.export.Dim("batch", min=1, max=_LARGEST_BATCH)}},
        dynamo=True,
        verbose=False,
    )
    proto: Any = program.model_proto
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as stream:
        stream.write(proto.SerializeToString())
