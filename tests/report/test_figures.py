"""Figures: every one that the runs allow, with the right values, and the same bytes each time."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from goal.common.errors import GoalError
from goal.methods.registry import METHODS
from goal.report.compare import find_runs, group_runs
from goal.report.figures import accuracy_figure, sweep_figure, write_figures
from goal.report.style import HUES, method_style
from tests.report.runs import write_run

FIVE = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0]


def line_of(axis: Any, label: str) -> Any:
    return next(line for line in axis.get_lines() if line.get_label() == label)


def test_writes_all_figures_the_runs_allow_and_repeats_them(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "a", FIVE)
    write_run(runs / "b", FIVE, assignments=("method.unsupervised_alignment=false",))
    write_run(runs / "c", FIVE, method="happy")
    for value in ("0.1", "0.9"):
        folder = runs / "sweep" / f"method.alpha={value}" / "seed-0"
        write_run(folder, FIVE, assignments=(f"method.alpha={value}",))
    written = write_figures([runs], tmp_path / "figs")
    assert {path.stem for path in written} == {
        "accuracy-cifar100-5-base-novel",
        "accuracy-cifar100-5-seen-unseen",
        "forgetting-cifar100-5",
        "ablation-cifar100-5",
        "sweep-cifar100-method.alpha",
    }
    assert len(written) == 10
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 600
        else:
            assert path.read_bytes().startswith(b"%PDF")
    again = write_figures([runs / "sweep"], tmp_path / "again")
    assert [p.name for p in again] == [f"sweep-cifar100-method.alpha.{k}" for k in ("pdf", "png")]
    for path in again:
        assert path.read_bytes() == (tmp_path / "figs" / path.name).read_bytes()


def test_lines_are_means_over_seeds(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FIVE)
    write_run(tmp_path / "b", [value + 2 for value in FIVE], seed=1)
    groups = group_runs(find_runs([tmp_path]))
    everything, _, new = accuracy_figure(groups, "base/novel").axes
    assert line_of(everything, "goal").get_ydata().tolist() == [value + 1 for value in FIVE]
    assert line_of(new, "goal").get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert line_of(new, "goal").get_color() == method_style("goal").light


def test_sweeps_are_ordered_by_number(tmp_path: Path) -> None:
    for value, shift in (("10", 4.0), ("9", 0.0)):
        folder = tmp_path / f"method.refresh_every={value}" / "seed-0"
        write_run(folder, [item + shift for item in FIVE])
    (axis,) = sweep_figure("method.refresh_every", find_runs([tmp_path])).axes
    assert line_of(axis, "All").get_xdata().tolist() == [9.0, 10.0]
    assert line_of(axis, "All").get_ydata().tolist() == [60.0, 64.0]


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(GoalError, match=r"goal-cgcd\[figures\]"):
        write_figures([tmp_path], tmp_path / "figs")


def test_no_two_methods_look_the_same() -> None:
    looks = {name: (s.light, s.dash, s.marker) for name in METHODS if (s := method_style(name))}
    assert len(set(looks.values())) == len(looks)
    assert method_style("of tomorrow") == method_style("of tomorrow")
    assert method_style("of tomorrow").light in {light for light, _ in HUES.values()}
    assert method_style("goal", 1) != method_style("goal", 2)
