"""Point 9: the backbone on the CPU by torch, onnxruntime and OpenVINO, on the same crops."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.speed.timing import interleaved
from goal.backbone.features import Embedder

Run = Callable[[npt.NDArray[np.float32]], Any]
HEAD = ["| backbone | runs on | ms per image | against torch | lowest cosine |"]
HEAD += ["|---|---|---:|---:|---:|"]


class _Scaled(nn.Module):
    """The network on crops that are scaled already, as other runtimes are given it."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.model = embedder.model
        self.read = embedder._read

    def forward(self, pixels: Tensor) -> Tensor:
        return self.read(self.model, pixels)


def _onnxruntime(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda crops: session.run(None, {"pixels": crops})[0]


def _openvino(path: Path) -> Run:
    import openvino

    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", {**threads, **exact})
    return lambda crops: compiled([crops])[0]


@torch.no_grad()
def measure(embedder: Embedder, title: str, images: int, repeats: int) -> list[str]:
    """Rows: milliseconds per image of each way, in turn, and how far features are apart."""
    side, plain = embedder.preprocessing.image_size, _Scaled(embedder).eval()
    crops = np.random.default_rng(0).normal(size=(images, 3, side, side)).astype(np.float32)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "backbone.onnx"
        given = (torch.from_numpy(crops),)
        torch.onnx.export(plain, given, path, input_names=["pixels"], dynamo=True, verbose=False)
        ways: dict[str, Run] = {"torch": lambda crops: plain(torch.from_numpy(crops)).numpy()}
        for name, load in (("onnxruntime", _onnxruntime), ("openvino", _openvino)):
            if importlib.util.find_spec(name):
                ways[name] = load(path)
        truth = ways["torch"](crops)
        apart = {name: _lowest(truth, np.asarray(way(crops))) for name, way in ways.items()}
        tasks = {name: lambda way=way: way(crops) for name, way in ways.items()}
        seconds = interleaved(tasks, repeats)
    return [
        f"| {title} | {name} | {1e3 * took / images:.1f} | {seconds['torch'] / took:.2f}x | "
        f"{apart[name]:.6f} |"
        for name, took in seconds.items()
    ]


def _lowest(truth: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> float:
    product = (truth * found).sum(axis=1)
    return float((product / np.linalg.norm(truth, axis=1) / np.linalg.norm(found, axis=1)).min())
