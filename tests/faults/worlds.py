"""Tiny pieces of work, and what must be the same however often they were interrupted."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from goal.bank.shelf import RECORD
from goal.storage import checkpoint
from goal.storage.files import read_jsonl
from goal.storage.locks import held
from goal.storage.seal import page_holds
from goal.verify import verify
from tests.faults.nursery import Outcome, Plan, goal
from tests.models.digit_folders import write_digits

TINY = (
    "protocol.train_per_class=16",
    "protocol.test_per_class=6",
    "protocol.stages=2",
    "protocol.new_per_stage=2",
    "training.base_epochs=2",
    "training.stage_epochs=2",
    "training.batch_size=32",
    "training.checkpoint_seconds=0.0",
    "method.warmup_epochs=0",
    "method.refresh_every=1",
    "bank.views=2",
)

_OWN_TIME = {"summary.json", "checkpoint.pt", "report.html", "manifest.json"}


@dataclass(frozen=True)
class Work:
    """A command, the world it starts in, and what an undisturbed one leaves behind."""

    name: str
    arguments: Callable[[Path], list[str]]
    set_up: Callable[[Path], object]
    reference: dict[str, Any]
    writes: list[str]
    seconds: float
    essence: Callable[[Path], dict[str, Any]]


def measured(
    name: str,
    root: Path,
    arguments: Callable[[Path], list[str]],
    set_up: Callable[[Path], object] = lambda root: None,
    essence: Callable[[Path], dict[str, Any]] | None = None,
) -> Work:
    """Do the work undisturbed in `root`, with the fork server warmed up."""
    warm = goal(root, "--version")
    assert warm.code == 0, warm.output
    set_up(root)
    began = time.monotonic()
    outcome = goal(root, *arguments(root))
    seconds = time.monotonic() - began
    assert outcome.code == 0, outcome.output
    look = essence or essence_of_run
    return Work(name, arguments, set_up, look(root), outcome.writes, seconds, look)


def run_arguments(root: Path) -> list[str]:
    return ["run", "digits/goal", "--out", str(root / "out"), "--set", *TINY]


def running(root: Path) -> Work:
    """A run: bank, base model, training, checkpoints, results, report."""
    return measured("run", root, run_arguments)


def reporting(root: Path) -> Work:
    """Writing the report of a finished run anew."""
    (source := root / "source").mkdir()
    assert goal(source, *run_arguments(source)).code == 0

    def set_up(place: Path) -> None:
        shutil.copytree(source / "out", place / "out", dirs_exist_ok=True)
        shutil.copytree(source / "cache", place / "cache")

    (inner := root / "inner").mkdir()
    return measured("report", inner, lambda place: ["resume", str(place / "out")], set_up)


def discovering(root: Path) -> Work:
    """A model that learns new images without labels."""
    (source := root / "source").mkdir()
    write_digits(source / "labelled", dict.fromkeys(range(3), range(8)), labelled=True)
    write_digits(source / "week", {**dict.fromkeys(range(3), range(8, 11)), 3: range(9)})
    model = ["--model", str(source / "model"), "--method", "goal", "--backbone", "digits-vit"]
    epochs = [
        "training.base_epochs=2",
        "training.stage_epochs=2",
        "training.checkpoint_seconds=0.0",
    ]
    fitted = goal(source, "fit", str(source / "labelled"), *model, "--set", "bank.views=2", *epochs)
    assert fitted.code == 0, fitted.output

    def set_up(place: Path) -> None:
        shutil.copytree(source / "model", place / "model", dirs_exist_ok=True)
        shutil.copytree(source / "cache", place / "cache")

    def arguments(place: Path) -> list[str]:
        return ["discover", str(source / "week"), "--model", str(place / "model"), "--new", "1"]

    (inner := root / "inner").mkdir()
    return measured("discover", inner, arguments, set_up, essence_of_model)


def correcting(root: Path) -> Work:
    """A model that is taught a few labelled images, of a new class and of one it found."""
    (source := root / "source").mkdir()
    write_digits(source / "labelled", dict.fromkeys(range(3), range(12)), labelled=True)
    write_digits(source / "week", {**dict.fromkeys(range(3), range(12, 15)), 3: range(20)})
    write_digits(source / "few", {3: range(18, 21), 7: range(4)}, labelled=True)
    model = ["--model", str(source / "model")]
    for words in (
        ["fit", str(source / "labelled"), *model, "--backbone", "digits-vit"],
        ["discover", str(source / "week"), *model, "--new", "1"],
        ["rename", "new-1", "3", *model],
    ):
        outcome = goal(source, *words)
        assert outcome.code == 0, outcome.output

    def set_up(place: Path) -> None:
        shutil.copytree(source / "model", place / "model", dirs_exist_ok=True)

    def arguments(place: Path) -> list[str]:
        return ["teach", str(source / "few"), "--model", str(place / "model")]

    (inner := root / "inner").mkdir()
    return measured("teach", inner, arguments, set_up, essence_of_taught)


WORKS: list[Callable[[Path], Work]] = [running, reporting, discovering, correcting]


def live_through(root: Path, plans: list[Plan]) -> list[Outcome]:
    """Run the experiment in `root`, struck by each plan in turn, then undisturbed."""
    outcomes = []
    for plan in [*plans, None]:
        outcomes.append(goal(root, *run_arguments(root), plan=plan))
        assert_nothing_torn(root)
    assert outcomes[-1].code == 0, outcomes[-1].output
    assert verify(root).problems == []
    return outcomes


def assert_nothing_torn(root: Path) -> None:
    """Check that every file that has its final name is whole, and every lock is free."""
    for path in (path for path in root.rglob("*") if not path.name.endswith(".tmp")):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            read_jsonl(path)
        elif path.suffix == ".pt":
            checkpoint.load(path)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as content:
                assert {"test_ids", "predictions", "truth"} <= set(content)
        elif path.suffix == ".html":
            page = path.read_bytes()
            assert page.endswith(b"</html>\n") or page_holds(page)
        elif path.name in (".lock", ".append"):
            with held(path, wait=False):
                pass


def essence_of_run(root: Path) -> dict[str, Any]:
    """Return everything a run leaves behind, less the time it took."""
    out = root / "out"
    found: dict[str, Any] = {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in _OWN_TIME
    }
    summary = json.loads((out / "summary.json").read_text())
    state = checkpoint.load(out / "checkpoint.pt")
    for key in ("wall_seconds", "stage_seconds", "seconds", "peak_memory_mb"):
        summary.pop(key, None)
        state.pop(key, None)
    bases = [checkpoint.load(path) for path in sorted((root / "cache" / "base").glob("*.pt"))]
    return found | {
        "summary": summary,
        "checkpoint": checkpoint.digest(state),
        "bases": [checkpoint.digest(base) for base in bases],
        "bank": banked(root / "cache" / "bank"),
        "leftovers": [str(path.relative_to(root)) for path in root.rglob("*.tmp")],
    }


def essence_of_model(root: Path) -> dict[str, Any]:
    """Return everything a model holds, less the time of each step."""
    found: dict[str, Any] = {}
    for path in sorted((root / "model").rglob("[!.]*")):
        name = str(path.relative_to(root))
        if path.name == "stage.json":
            found[name] = {**json.loads(path.read_text()), "created": None}
        elif path.name == "decisions.jsonl":  # times, and seals of steps, which hold theirs
            own = {"time": None, "seal": None, "check": None}
            found[name] = [{**line, **own} for line in read_jsonl(path)]
        elif path.suffix == ".pt":
            found[name] = checkpoint.digest(checkpoint.load(path))
        elif path.is_file() and path.name not in _OWN_TIME:
            found[name] = path.read_bytes()
    leftovers = [str(path.relative_to(root)) for path in root.rglob("*.tmp")]
    return found | {"bank": banked(root / "cache" / "bank"), "leftovers": leftovers}


def essence_of_taught(root: Path) -> dict[str, Any]:
    """The same of a model that was taught; said once or again after a kill, it knows the same."""
    found = essence_of_model(root)
    lines = found.pop("model/decisions.jsonl")
    said = {line["said"].partition(" (before")[0] for line in lines if line.get("kind") == "teach"}
    found["said"] = sorted(said)
    return {name: held for name, held in found.items() if not name.endswith(".html")}


def banked(bank: Path) -> dict[str, dict[bytes, bytes]]:
    """Return the tokens of every shelf, by image."""
    shelves = {}
    for folder in (path.parent for path in bank.glob("*/*/about.json")):
        records = np.frombuffer((folder / "rows.bin").read_bytes(), dtype=RECORD)
        tokens = (folder / "tokens.bin").read_bytes()
        size = len(tokens) // len(records)
        assert len(tokens) == size * len(records)
        rows = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        digests = [bytes(digest) for digest in records["digest"]]
        shelves[folder.name] = dict(zip(digests, rows, strict=True))
    return shelves
