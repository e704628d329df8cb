"""The benchmarks run, and what they compare computes the same thing."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import views
from benchmarks.speed import experiment, limits, steps, timing
from benchmarks.speed.__main__ import main
from benchmarks.speed.subjects import TINY, FullModel, cut, pixel_batch, random_model


def test_a_quick_run_reports_every_point(tmp_path: Path) -> None:
    for points in ("1,2,3,4,5", "6,10,11"):
        main(quick=True, points=points, out=tmp_path)
    report = (tmp_path / "RESULTS.md").read_text()
    for number in (1, 2, 3, 4, 5, 6, 10, 11):
        assert report.count(f"\n## {number}. ") == 1
    assert report.index("\n## 6. ") < report.index("\n## 11. ")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", steps.METHODS)
def test_reference_and_ours_have_the_same_losses(name: str) -> None:
    found = steps.measure(TINY, name, steps.Plan(3, 4, 8, 1))
    assert found.difference < 1e-4


def test_the_reference_trains_its_last_block_only() -> None:
    full = FullModel(random_model(TINY))
    batch = pixel_batch(TINY, 2)
    full(batch.first, batch.second).sum().backward()
    trained = {name for name, weight in full.named_parameters() if weight.grad is not None}
    assert trained and all(name.startswith("model.layers.1.") for name in trained)


def test_exponents_of_known_powers() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    for power in (0.0, 1.0, 2.0):
        assert math.isclose(
            timing.exponent(sizes, [3 * s**power for s in sizes]), power, abs_tol=1e-9
        )


def test_counts_of_the_protocol() -> None:
    counts = experiment.cifar100_counts(views=4)
    assert counts.base_steps == 50 * 400 * 100
    later = [10 * 400 + 50 * 25 + 10 * done * 25 for done in range(5)]
    assert counts.stage_steps == 30 * sum(later)
    assert counts.tests == sum(100 * (50 + 10 * stage) for stage in range(6))


def test_work_of_a_projector_by_counting() -> None:
    rows, widths = 5, (4, 3, 2)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(widths)]
    products = sum(rows * a * b for a, b in pairwise(widths))
    assert limits.linear_work(torch.nn.Sequential(*layers), rows) == 3 * 2 * products


def test_trunk_and_tail_of_the_benchmark_are_the_model() -> None:
    model = random_model(TINY)
    backbone = cut(model)
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8))
    scaled = (pixels / 255 - backbone.trunk.mean) / backbone.trunk.std
    with torch.no_grad():
        expected = model(pixel_values=scaled).last_hidden_state[:, 0]
        assert torch.allclose(backbone.tail(backbone.trunk(pixels)), expected, atol=1e-4)


def test_view_study_writes_a_page_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "short.yaml"
    recipe.write_text(
        "data: {name: digits}\n"
        "protocol: {stages: 1, unlabelled_new: 20}\n"
        "training: {base_epochs: 1, stage_epochs: 1}\n"
        "method: {name: goal, projector_hidden: 16, projector_out: 16}\n"
    )
    monkeypatch.setattr(views, "STUDIES", {"digits": str(recipe)})
    monkeypatch.setattr(views, "BANKS", {"1 view": views.BANKS["1 view"]})
    page = tmp_path / "views.md"
    views.run(out=tmp_path / "runs", seeds="0", page=page)
    first = page.read_text()
    assert "## digits, digits-vit" in first and "| 1 view | 1 | " in first
    written = (tmp_path / "runs/digits/1-view/seed-0/summary.json").stat().st_mtime_ns
    views.run(out=tmp_path / "runs", seeds="0", page=page)
    assert (tmp_path / "runs/digits/1-view/seed-0/summary.json").stat().st_mtime_ns == written
    assert page.read_text() == first
