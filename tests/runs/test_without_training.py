"""Methods that take no gradient steps run too, and need no views."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens
from goal.methods import registry as methods
from goal.methods.base import LabelledStage, Method, MethodSettings, Outputs, Stage, infer_all
from goal.numerics.clustering import class_means, kmeans
from goal.runs.run import start
from goal.settings.settings import compose
from goal.storage.files import read_json


class NearestMean(Method):
    """A memory without gradient steps: class means of the frozen feature, novel ones by k-means."""

    Settings = MethodSettings
    means: Tensor

    def __init__(self, tail: Tail) -> None:
        super().__init__(tail)
        self.register_buffer("means", torch.empty(0, tail.width))

    @classmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> "NearestMean":
        return cls(tail)

    @property
    def num_classes(self) -> int:
        return len(self.means)

    def trains(self, index: int) -> bool:
        return False

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        features = infer_all(self, stage.tokens).features
        if isinstance(stage, LabelledStage):
            new = class_means(features, stage.labels, stage.num_new)
        else:
            far = (features @ self.means.T).amax(dim=1).argsort()[: len(features) // 2]
            new = kmeans(features[far], stage.num_new, rng)[1]
        self.means = torch.cat([self.means, new])

    def infer(self, tokens: Tokens) -> Outputs:
        features = F.normalize(self.tail(tokens), dim=1)
        return Outputs(features, features @ F.normalize(self.means, dim=1).T)


@pytest.mark.parametrize(("name", "views"), [("kmeans", 0), ("goal", 2)])
def test_views_are_banked_only_for_methods_that_train(
    name: str, views: int, tmp_path: Path
) -> None:
    bank = {"views": 2, "folder": str(tmp_path / "cache")}
    training = {"base_epochs": 1, "stage_epochs": 1}
    tree = {"method": {"name": name}, "bank": bank, "training": training}
    start(compose(tree), tmp_path / "out")
    shelves = [read_json(path)["view"] for path in (tmp_path / "cache").rglob("about.json")]
    assert shelves.count("clean") == 1 and len(shelves) == 1 + views


def test_a_method_may_learn_without_gradient_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = methods.MethodSpec(NearestMean, "class means")
    monkeypatch.setitem(methods.METHODS, "nearest-mean", spec)
    from goal.settings.settings import compose

    settings = compose({"method": {"name": "nearest-mean"}, "bank": {"views": 1}})
    summary = start(settings, tmp_path / "out")
    assert summary["stage0_all"] > 90
    assert (tmp_path / "out" / "history.jsonl").read_text() == ""
