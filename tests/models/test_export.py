"""Exported graphs say what the method says, in onnxruntime."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from goal.backbone.load import load_backbone
from goal.backbone.tokens import Tokens
from goal.backbone.trunk import Backbone, BackboneSettings
from goal.common.errors import GoalError
from goal.data.transforms import TransformSettings, clean
from goal.methods.base import LabelledStage, Method
from goal.methods.registry import METHODS
from goal.models import export
from goal.models.export import export_onnx
from goal.models.resampling import CentreCut, plain_cut

onnxruntime = pytest.importorskip("onnxruntime")

SIDE, CLASSES = 16, 3
TRANSFORM = TransformSettings(image_size=SIDE, resize=18, flip=False)
CUT = CentreCut(plain_cut(SIDE, 18))
NAMES = ["zero", "one", "new-1"]
SMALL = {"projector_hidden": 16, "projector_out": 8, "memory_width": 40}


def pixels(count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3, SIDE, SIDE), dtype=np.uint8)


class Fixed:
    """Tokens of images that are held in memory."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def clean(self, positions: Tensor) -> Tokens:
        return Tokens(self.tokens.normalised[positions], self.tokens.cls[positions])

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        return self.clean(positions), self.clean(positions)


def fitted(name: str) -> tuple[Backbone, Method]:
    """A method that knows three classes of noise; what it learnt does not matter here."""
    backbone = load_backbone(BackboneSettings(name="digits-vit"))
    spec = METHODS[name]
    known = {key: value for key, value in SMALL.items() if key in spec.method.Settings.model_fields}
    settings = spec.method.Settings.parse({"name": name, **spec.preset, **known})
    rng = torch.Generator().manual_seed(0)
    method = spec.method.build(settings, backbone.tail, CLASSES, rng).eval()
    tokens = Fixed(backbone.trunk(torch.from_numpy(pixels(30, seed=1))))
    stage = LabelledStage(0, 0, CLASSES, 1, tokens, torch.arange(30) % CLASSES)
    method.begin_stage(stage, rng)
    method.end_stage(stage, rng)
    return backbone, method


@pytest.mark.parametrize("name", ["goal", "goal-plus", "happy", "vb_cgcd", "dydm", "kmeans"])
def test_the_graph_scores_whole_images_as_the_method_does(name: str, tmp_path: Path) -> None:
    backbone, method = fitted(name)
    export_onnx(backbone.trunk, method, NAMES, CUT, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    rng = np.random.default_rng(2)
    for shape in ((1, 18, 18, 3), (5, 40, 23, 3), (2, 7, 90, 3)):
        images = rng.integers(0, 256, shape, dtype=np.uint8)
        cut = np.stack([clean(Image.fromarray(image), TRANSFORM) for image in images])
        with torch.no_grad():
            outputs = method.infer(backbone.trunk(torch.from_numpy(cut)))
            scores = method.class_scores(outputs)
        found, probable = session.run(None, {"pixels": images})
        expected = scores.numpy()
        likely = method.probabilities(scores).numpy()
        np.testing.assert_allclose(probable, likely, atol=5e-3)
        size = np.abs(expected).max()
        np.testing.assert_allclose(found / size, expected / size, atol=1e-3)
        best = np.sort(expected, axis=1)
        clear = best[:, -1] - best[:, -2] > 2e-3 * size
        assert (found.argmax(axis=1) == expected.argmax(axis=1))[clear].all()
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["class_names"]) == NAMES


def test_names_must_fit_and_packages_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, method = fitted("goal")
    with pytest.raises(GoalError, match="2 class names for 3 classes"):
        export_onnx(backbone.trunk, method, NAMES[:2], CUT, tmp_path / "model.onnx")
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(GoalError, match=r"onnx and onnxscript.*goal-cgcd\[onnx\]"):
        export_onnx(backbone.trunk, method, NAMES, CUT, tmp_path / "model.onnx")
