"""The paper's benchmarks: every experiment parses, and the page shows what was run."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from benchmarks.cifar100.benchmarks import FULL, SMALL
from benchmarks.cub.benchmarks import FULL as CUB
from benchmarks.paper import running
from benchmarks.paper.benchmark import Benchmark, folder_of
from benchmarks.paper.page import write_page
from benchmarks.paper.references import REFERENCES, First, FirstOracle
from goal.common.progress import Reporter
from goal.methods.base import infer_all
from goal.methods.registry import METHODS, MethodSpec
from goal.runs.grid import Cell, Failure
from goal.settings.recipes import shipped_recipe
from goal.settings.settings import compose
from goal.testing.planted import base_stage, next_stage, small_method
from goal.testing.teaching import TEST, learn
from tests.report.runs import write_run

FLAGS = {"data": {"root": "data"}, "backbone": {"name": "somewhere/resnet"}}


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The references are methods only while these tests run."""
    for name in REFERENCES:
        monkeypatch.setitem(METHODS, name, METHODS["goal-plus"])


@pytest.mark.parametrize(
    ("benchmark", "part"),
    [(one, part) for one in (SMALL, FULL, CUB) for part in one.parts],
    ids=lambda value: value if isinstance(value, str) else value.command,
)
def test_every_experiment_has_settings_and_a_folder_of_its_own(
    benchmark: Benchmark, part: str, tmp_path: Path
) -> None:
    todo = benchmark.cells([part], [0, 1], tmp_path, FLAGS)
    assert len({cell.folder for cell in todo}) == len(todo) == 2 * len(benchmark.parts[part])
    for cell in todo:
        assert cell.folder.is_relative_to(tmp_path / part)
        assert cell.settings.data.name == benchmark.dataset and cell.settings.threads == 1
        last = part == "last-block"
        assert cell.settings.backbone.tail == ("last-block" if last else "added")
        assert cell.settings.backbone.neck == (None if last else 512)
        assert cell.settings.protocol.train_per_class == (125 if benchmark is SMALL else None)


@pytest.mark.parametrize("benchmark", [FULL, CUB])
def test_full_size_is_the_published_protocol_and_loop(benchmark: Benchmark, tmp_path: Path) -> None:
    (cell,) = benchmark.cells(["five-stages"], [0], tmp_path, FLAGS, ["happy"])
    published = compose(shipped_recipe(benchmark.dataset, "happy"))
    assert cell.settings.training == published.training
    assert cell.settings.protocol == published.protocol
    assert cell.settings.bank.views == 4


def test_seeds_come_one_after_the_other_and_late_rows_after_the_rest(tmp_path: Path) -> None:
    todo = CUB.cells(list(CUB.parts), [0, 1], tmp_path, FLAGS)
    seeds = [cell.settings.seed for cell in todo]
    assert seeds == sorted(seeds)
    first = [cell.title for cell in todo if cell.settings.seed == 0]
    assert first[:3] == [
        "five-stages: goal-plus, seed 0",
        "five-stages: goal-plus, oracle (a bound), seed 0",
        "five-stages: kmeans, seed 0",
    ]
    assert first.index("readings: one space, heads on vertices, seed 0") < first.index(
        "five-stages: gm, seed 0"
    )


def test_an_experiment_that_two_rows_share_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def attempt(cell: Cell, progress: Reporter) -> list[Failure]:
        started.append(cell.title)
        cell.folder.mkdir(parents=True, exist_ok=True)
        (cell.folder / "summary.json").write_text(cell.title)
        return [Failure(cell.title, "broken")] if "unsupervised" in cell.title else []

    monkeypatch.setattr(running, "attempt", attempt)
    rows = ["goal", "both", "unsupervised", "method.alpha=0.7"]
    todo = CUB.cells(["five-stages", "alignment", "alpha"], [0], tmp_path, FLAGS, rows)
    failures = running.run_all(todo, Reporter())
    assert started == ["five-stages: goal, seed 0", "alignment: unsupervised, seed 0"]
    assert [failure.title for failure in failures] == ["alignment: unsupervised, seed 0"]
    for folder in ("alignment/both", "alpha/method.alpha=0.7"):
        copy = tmp_path / folder / "seed-0" / "summary.json"
        assert copy.read_text() == "five-stages: goal, seed 0"
    assert not list(tmp_path.glob(".copying*"))
    started.clear()
    running.run_all(todo, Reporter())  # resumed: each folder looks after itself
    assert len(started) == 4


def test_the_page_shows_what_was_run_and_names_what_was_not(tmp_path: Path) -> None:
    row = next(row for row in SMALL.parts["five-stages"] if row.name == "happy")
    folder = folder_of(tmp_path, "five-stages", row)
    for seed, shift in ((0, 0.0), (1, 2.0)):
        accuracy = [90.0, *(value + shift for value in (80.0, 70.0, 60.0, 50.0, 40.0))]
        run = write_run(folder / f"seed-{seed}", accuracy, method="happy", seed=seed)
        (run / "checkpoint.pt").write_bytes(b"0" * 1_500_000)
    text = write_page(SMALL, tmp_path, tmp_path / "page.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("| happy |"))
    cells_ = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells_[:6] == ["happy", "0,1", "90.0 ± 0.0", "–", "61.0 ± 1.4", "71.0 ± 1.4"]
    assert cells_[-5:] == ["69", "no", "0.0", "1.5", "–"]
    assert "Not run yet:" in text and "metagcd" in text and "## Ten stages" not in text


def test_ablation_and_sweep_have_their_published_figures_and_a_picture(tmp_path: Path) -> None:
    published = {"neither": "69.6", "both": "72.1", "method.alpha=0.7": "72.1"}
    wanted = {"alignment": ("neither", "both"), "alpha": ("method.alpha=0.1", "method.alpha=0.7")}
    accuracy = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]
    for part, names in wanted.items():
        for row in (row for row in SMALL.parts[part] if row.name in names):
            folder = folder_of(tmp_path, part, row) / "seed-0"
            run = write_run(folder, accuracy, method="goal", assignments=row.assignments)
            (run / "checkpoint.pt").write_bytes(b"0")
    text = write_page(SMALL, tmp_path, tmp_path / "page.md").read_text()
    for name in (*wanted["alignment"], *wanted["alpha"]):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
        stated = published.get(name, "–")
        assert line.split(" | ")[10:12] == [stated, "–" if stated == "–" else "no"]
    for part in wanted:
        assert f"({part}.png)" in text
        with Image.open(tmp_path / f"{part}.png") as image:
            assert min(image.size) > 600


def test_neural_collapse_stands_beside_the_accuracy(tmp_path: Path) -> None:
    row = next(row for row in CUB.parts["lengths"])
    for seed, value in ((0, 0.25), (1, 0.75)):
        run = write_run(
            folder_of(tmp_path, "lengths", row) / f"seed-{seed}",
            [90.0, 80.0],
            dataset="cub",
            seed=seed,
        )
        (run / "checkpoint.pt").write_bytes(b"0")
        path = run / "results.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        records[0] |= {"nc1": value, "nc2": 0.1, "nc3": 0.9, "nc4": 1.0}
        records[1] |= {"nc1": 2 * value, "nc3_vertices": 0.5}
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    text = write_page(CUB, tmp_path, tmp_path / "page.md").read_text()
    start = f"| {row.name} | 0.50 | 0.10 | 0.90 | – | 1.00 | 1.00 | – | – | 0.50 | – |"
    assert start in text
    assert "| row | NC1 S0 | NC2 S0 | NC3 S0 | NC3V S0 | NC4 S0 | NC1 last |" in text
    assert "](../../docs/glossary.md)" in text and "$ python -m benchmarks.cub --data-root" in text


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
    memory = method.memory
    nearest = torch.cdist(memory.looking(feature).double(), memory.known).argmin(dim=1)
    assert torch.equal(method.predict(infer_all(method, TEST)), nearest)
    assert issubclass(FirstOracle, First)
