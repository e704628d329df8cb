"""Plug-ins: found without a fork, listed without torch, and never in the way when broken."""

import importlib.metadata
import logging
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from goal.common import plugins
from goal.common.errors import GoalError
from goal.common.plugins import Registry
from goal.data.images import DatasetSpec
from goal.data.sets import DATASETS
from goal.methods.registry import METHODS, MethodSpec
from goal.testing import check_dataset
from tests.house.plugging import declare, install, python

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
SMALL = ["--set", "bank.views=1", "training.base_epochs=1", "training.stage_epochs=1"]

# Runs commands in one process, then says which heavy modules that took.
COMMANDS = """
import sys
from goal.cli import main
for words in {commands!r}:
    try:
        main(words)
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
heavy = [name for name in ('torch', 'transformers', 'sklearn', 'scipy') if name in sys.modules]
print('heavy:', heavy)
"""


def commands(site: Path, *all_words: list[str]) -> tuple[str, str]:
    """Output and errors of commands, all of which must succeed."""
    done = python(site, "-c", COMMANDS.format(commands=list(all_words)))
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is installed."""
    folder = tmp_path_factory.mktemp("site")
    install(EXAMPLE, folder)
    return folder


KINDS = ["methods", "datasets", "recipes", "backbones"]
LISTS = [["list", kind] for kind in KINDS]


def test_lists_need_nothing_heavy(tmp_path: Path) -> None:
    out, err = commands(tmp_path, *LISTS)
    assert out.endswith("heavy: []\n") and err == ""
    assert "plug-in" not in out


def test_the_example_is_listed_with_its_package(site: Path) -> None:
    out, err = commands(site, *LISTS)
    assert out.endswith("heavy: []\n") and err == ""
    for name in ("nearest-mean", "stripes"):
        (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
        assert line.rstrip().endswith("(plug-in of goal-nearest)")
    (line,) = [line for line in out.splitlines() if line.split()[:1] == ["kmeans"]]
    assert "plug-in" not in line


def test_the_example_runs_in_every_command(site: Path, tmp_path: Path) -> None:
    from tests.models.digit_folders import write_digits

    labelled = write_digits(tmp_path / "labelled", {0: range(6), 1: range(6)}, labelled=True)
    week = write_digits(tmp_path / "week", {0: range(6, 9), 2: range(6)})
    pair = ["--dataset", "stripes", "--method", "nearest-mean"]
    grid = ["--datasets", "stripes", "--methods", "nearest-mean,kmeans", "--seeds", "0"]
    model = str(tmp_path / "model")
    fit = ["--model", model, "--method", "nearest-mean", "--backbone", "digits-vit"]
    out, err = commands(
        site,
        ["run", *pair, "--out", str(tmp_path / "run"), "--set", "method.rounds=9", *SMALL[1:]],
        ["bench", *grid, "--out", str(tmp_path / "grid"), *SMALL],
        ["fit", str(labelled), *fit, *SMALL],
        ["discover", str(week), "--model", model, "--new", "1"],
    )
    assert "nearest-mean, n=1" in out and "Learned 2 classes from 12 images" in out
    assert "Skipped" not in err
    assert (tmp_path / "run" / "report.html").exists()


def test_the_example_passes_its_own_test(site: Path) -> None:
    where = str(EXAMPLE / "tests")
    done = python(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", where, where)
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_page_shows_the_example_as_it_is() -> None:
    page = ROOT / "docs" / "plugins.md"
    code = "\n".join(path.read_text() for path in sorted(EXAMPLE.rglob("*.py")))
    shown = blocks(page, "python")
    assert len(shown) >= 4
    for block in shown:
        for piece in block.strip("\n").split("\n\n\n"):
            assert piece in code or indent(piece, "    ") in code, piece
    (declared,) = blocks(page, "toml")
    assert declared in (EXAMPLE / "pyproject.toml").read_text()


# -- broken ones ----------------------------------------------------------------------------------

BAD = {
    "absent": "no_such_module:SPEC",
    "crash": "bad_plugin:CRASH",
    "kmeans": "good_plugin:SPEC",
    "number": "bad_number:SPEC",
    "../up": "good_plugin:SPEC",
    "leaves": "bad_leaver:SPEC",
}


def write_bad(folder: Path) -> None:
    """Plug-ins that are broken in every way, and one that is not."""
    declare(folder, "bad-ones", {"goal.methods": BAD, "goal.datasets": {"digits": "x:y", **BAD}})
    declare(folder, "good-one", {"goal.methods": {"good": "good_plugin:SPEC"}})
    (folder / "bad_plugin.py").write_text("raise ZeroDivisionError('two\\nlines \\x1b[2J')\n")
    (folder / "bad_number.py").write_text("SPEC = 3\n")
    (folder / "bad_leaver.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "good_plugin.py").write_text(
        "from goal.methods.registry import MethodSpec\n"
        "SPEC = MethodSpec('goal.methods.kmeans:FrozenKMeans', 'works')\n"
    )


def test_broken_plugins_are_named_once_and_skipped(tmp_path: Path) -> None:
    write_bad(tmp_path)
    out, err = commands(tmp_path, ["list", "methods"], ["list", "methods"])
    assert out.count("works (plug-in of good-one)") == 2
    assert "goal-plus" in out and out.endswith("heavy: []\n")
    lines = err.splitlines()
    assert len(lines) == len(BAD)
    assert all(line.startswith("Skipped the plug-in '") and "bad-ones" in line for line in lines)
    for name in BAD:
        assert sum(f"'{name}'" in line for line in lines) == 1, name
    assert "ModuleNotFoundError: No module named 'no_such_module'" in err
    assert "two lines" in err and "\x1b" not in err
    assert "3 is no MethodSpec" not in err and "is no MethodSpec" in err


def test_broken_plugins_are_in_nobodys_way(tmp_path: Path) -> None:
    write_bad(tmp_path)
    run = ["run", "--method", "kmeans", "--out", str(tmp_path / "run"), *SMALL]
    out, err = commands(tmp_path, ["list", "datasets"], run, ["compare", str(tmp_path / "run")])
    assert "imagenet100" in out and "kmeans, n=1" in out
    assert "'kmeans' (goal.methods) of the package bad-ones: goal has an entry of that name" in err
    assert "'digits' (goal.datasets) of the package bad-ones" in err
    assert "'crash' (goal.methods)" not in err, "nobody asked for it"


# -- the registry ---------------------------------------------------------------------------------


class Points(list[EntryPoint]):
    """Entry points as installed, counting how often they are read."""

    reads = 0


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[Points]:
    installed = Points()

    def read(group: str) -> list[EntryPoint]:
        installed.reads += 1
        return [point for point in installed if point.group == group]

    monkeypatch.setattr(plugins, "entry_points", read)
    yield installed


def registry(**shipped: int) -> Registry[int]:
    return Registry("numbers", int, shipped)


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group="numbers")


def test_entry_points_are_read_when_first_asked_for_and_once(points: Points) -> None:
    points.append(point("nine", "stat:ST_CTIME"))
    numbers = registry(one=1)
    numbers["two"] = 2
    assert points.reads == 0 and numbers.package("nine") is None
    assert dict(numbers) == {"one": 1, "two": 2, "nine": 9} and len(numbers) == 3
    assert points.reads == 1
    assert numbers.package("nine") == "unknown" and numbers.package("one") is None
    assert dict(numbers.shipped) == {"one": 1}
    assert "ten" not in numbers


def test_entries_can_be_replaced_and_taken_away(points: Points) -> None:
    points += [point("nine", "stat:ST_CTIME"), point("eight", "stat:ST_MTIME")]
    numbers = registry(one=1)
    assert numbers["nine"] == 9
    numbers["nine"], numbers["eight"] = 90, 80
    assert (numbers["nine"], numbers["eight"]) == (90, 80)
    assert numbers.package("nine") is None
    del numbers["nine"]
    assert sorted(numbers) == ["eight", "one"]


def test_of_two_packages_with_one_name_the_first_has_it(
    points: Points, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    points += [point("nine", "stat:ST_CTIME"), point("nine", "stat:ST_MTIME")]
    numbers = registry()
    assert numbers["nine"] == 9
    assert "has an entry of that name, too" in caplog.text
    caplog.clear()
    monkeypatch.setenv("RANK", "1")  # of several processes the first one speaks
    assert len(registry()) == 1 and caplog.text == ""


def test_a_long_complaint_is_cut(points: Points, caplog: pytest.LogCaptureFixture) -> None:
    points.append(point("long", f"{'x' * 500}:SPEC"))
    assert list(registry()) == []
    ((_, level, text),) = caplog.record_tuples
    assert level == logging.WARNING and len(text) < 310 and text.endswith("...")


def test_the_registries_read_their_groups() -> None:
    for group, found, shipped in (
        ("goal.methods", set(METHODS), set(METHODS.shipped)),
        ("goal.datasets", set(DATASETS), set(DATASETS.shipped)),
    ):
        installed = {point.name for point in importlib.metadata.entry_points(group=group)}
        assert shipped <= found <= shipped | installed


@pytest.mark.parametrize("where", ["kmeans", ":FrozenKMeans", "goal.methods.kmeans:", 3])
def test_a_method_says_where_its_class_is(where: Any) -> None:
    with pytest.raises(TypeError, match="class"):
        MethodSpec(where, "misplaced")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("goal.methods.kmeans:Absent", "Cannot import the method .*Absent"),
        ("goal.no_such:Method", "Cannot import the method .*ModuleNotFoundError"),
        ("goal.methods.kmeans:ClusteringSettings", "no subclass of"),
        (int, "no subclass of"),
    ],
)
def test_a_class_that_is_no_method_is_refused_when_needed(where: Any, reason: str) -> None:
    spec = MethodSpec(where, "misplaced")
    with pytest.raises(GoalError, match=reason):
        _ = spec.method


@pytest.mark.parametrize("wrong", [{"summary": 3}, {"load": 3}, {"defaults": 3}])
def test_a_dataset_of_wrong_parts_is_refused(wrong: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"summary": "a", "load": print, "defaults": {}, **wrong}
    with pytest.raises(TypeError):
        DatasetSpec(**parts)


def test_every_embedded_dataset_keeps_its_promises() -> None:
    check_dataset("digits")
