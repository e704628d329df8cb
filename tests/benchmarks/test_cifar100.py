"""The CIFAR-100 benchmark: every experiment parses, and the page shows what was run."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from benchmarks.cifar100.grid import PARTS, cells, folder_of
from benchmarks.cifar100.page import write_page
from benchmarks.cifar100.references import REFERENCES, First, FirstOracle, Oracle
from goal.methods.base import infer_all
from goal.methods.registry import METHODS, MethodSpec
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import TEST, learn
from tests.report.runs import write_run

FLAGS = {"data": {"root": "data"}, "backbone": {"name": "somewhere/resnet"}}


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The references are methods only while these tests run."""
    for name in REFERENCES:
        monkeypatch.setitem(METHODS, name, METHODS["goal-plus"])


@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_experiment_has_settings_and_a_folder_of_its_own(part: str, tmp_path: Path) -> None:
    todo = cells(part, [0, 1], tmp_path, FLAGS)
    assert len({cell.folder for cell in todo}) == len(todo) == 2 * len(PARTS[part])
    for cell in todo:
        assert cell.settings.protocol.train_per_class == 125
        assert cell.settings.backbone.neck == 512
        assert cell.folder.is_relative_to(tmp_path / part)


def test_the_page_shows_what_was_run_and_names_what_was_not(tmp_path: Path) -> None:
    row = next(row for row in PARTS["five-stages"] if row.name == "happy")
    folder = folder_of(tmp_path, "five-stages", row)
    for seed, shift in ((0, 0.0), (1, 2.0)):
        accuracy = [90.0, *(value + shift for value in (80.0, 70.0, 60.0, 50.0, 40.0))]
        run = write_run(folder / f"seed-{seed}", accuracy, method="happy", seed=seed)
        (run / "checkpoint.pt").write_bytes(b"0" * 1_500_000)
    text = write_page(tmp_path, tmp_path / "page.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("| happy |"))
    cells_ = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells_[:5] == ["happy", "0,1", "90.0 ± 0.0", "61.0 ± 1.4", "71.0 ± 1.4"]
    assert cells_[-5:] == ["69", "no", "0.0", "1.5", "–"]
    assert "Not run yet:" in text and "metagcd" in text and "## Ten stages" not in text


def test_ablation_and_sweep_have_their_published_figures_and_a_picture(tmp_path: Path) -> None:
    published = {"neither": "69.6", "both": "72.1", "method.alpha=0.7": "72.1"}
    wanted = {"alignment": ("neither", "both"), "alpha": ("method.alpha=0.1", "method.alpha=0.7")}
    accuracy = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]
    for part, names in wanted.items():
        for row in (row for row in PARTS[part] if row.name in names):
            folder = folder_of(tmp_path, part, row) / "seed-0"
            run = write_run(folder, accuracy, method="goal", assignments=row.assignments)
            (run / "checkpoint.pt").write_bytes(b"0")
    text = write_page(tmp_path, tmp_path / "page.md").read_text()
    for name in (*wanted["alignment"], *wanted["alpha"]):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
        stated = published.get(name, "–")
        assert line.split(" | ")[9:11] == [stated, "–" if stated == "–" else "no"]
    for part in wanted:
        assert f"({part}.png)" in text
        with Image.open(tmp_path / f"{part}.png") as image:
            assert min(image.size) > 600


def test_where_goal_plus_began_decides_by_the_nearest_mean_of_one_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS, "goal-plus-first", MethodSpec(First, ""))
    method = small_method(
        "goal-plus-first",
        shape=0.0,
        parts=2,
        caution=0.0,
        discovery_dimensions=8,
        pretrained_dimensions=8,
        aligned_dimensions=8,
    )
    assert isinstance(method, First)
    learn(method, base_stage(epochs=5))
    learn(method, next_stage())
    with torch.no_grad():
        feature = torch.cat(
            [
                F.normalize(method.tail(TEST.clean(one)), dim=1)
                for one in torch.arange(len(TEST)).split(64)
            ]
        )
    nearest = torch.cdist(method.aligned(feature), method.known).argmin(dim=1)
    assert torch.equal(method.predict(infer_all(method, TEST)), nearest)
    assert issubclass(FirstOracle, Oracle)
