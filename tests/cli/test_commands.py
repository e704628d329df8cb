"""The command line as a person meets it."""

import json
from pathlib import Path

import pytest

from goal.cli import main
from goal.methods.registry import METHODS
from tests.small_run import as_flags

SMALL = [*as_flags(), "--set", "protocol.stages=1", "protocol.new_per_stage=2"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, with line breaks of boxes undone."""
    try:
        main(list(arguments))
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, " ".join(err.replace("│", " ").split())


def test_run_then_resume_then_list_and_clear_the_bank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    code, out, _ = run(capsys, "run", "--dataset", "digits", "--out", str(folder), *SMALL)
    assert code == 0
    assert "Accuracy per stage" in out and "Token bank:" in out
    assert str(folder / "report.html") in out.replace("\n", "")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["method"] == "goal"

    code, out, _ = run(capsys, "resume", str(folder))
    assert code == 0 and "finished already" in out

    code, out, _ = run(capsys, "bank", "info")
    assert code == 0 and "clean" in out
    code, out, _ = run(capsys, "bank", "clear")
    assert code == 0 and out.startswith("Freed ")
    assert not list(tmp_path.rglob("tokens.bin"))


def test_a_recipe_file_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("seed: 3\nmethod: {name: kmeans}\nprotocol: {stages: 1, new_per_stage: 1}\n")
    code, _, _ = run(capsys, "run", str(recipe), "--out", str(tmp_path / "a"))
    assert code == 0
    assert "seed: 3" in (tmp_path / "a" / "settings.yaml").read_text()
    code, _, _ = run(capsys, "run", str(recipe), "--out", str(tmp_path / "b"), "--seed", "4")
    assert code == 0
    assert "seed: 4" in (tmp_path / "b" / "settings.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "--dataset", "digitz"], 1, "Did you mean 'digits'?"),
        (["run", "--method", "gaol"], 1, "Did you mean 'goal'?"),
        (["run", "digits/gaol"], 1, "Did you mean 'digits/goal'?"),
        (["run", "--set", "method.alhpa=1"], 1, "Did you mean 'alpha'?"),
        (["run", "--set", "trianing.batch_size=8"], 1, "Did you mean 'training'?"),
        (["run", "--set", "training.batch_size=many"], 1, "training.batch_size"),
        (["run", "--set", "nonsense"], 1, "key.sub=value"),
        (["run", "--backbone", "digits-vti"], 1, "Did you mean 'digits-vit'?"),
        (["run", "--mehtod", "goal"], 2, "Did you mean --method?"),
        (["run", "--dataset", "cifar100", "--data-root", "nowhere"], 1, "--download"),
        (["run", "--set", "method.num_vertices=999"], 1, "999 vertices do not fit"),
        (["run", "--set", "protocol.stages=4"], 1, "new_per_stage"),
    ],
)
def test_mistakes_get_a_helpful_message(
    arguments: list[str],
    code: int,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, _, err = run(capsys, *arguments, "--out", str(tmp_path / "out"))
    assert found == code
    assert text in err
    assert "Traceback" not in err
    assert not (tmp_path / "out" / "settings.yaml").exists()


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    from goal.common.errors import GoalError

    with pytest.raises(GoalError):
        main(["--debug", "resume", str(tmp_path)])


@pytest.mark.parametrize("kind", ["methods", "datasets", "backbones", "recipes"])
def test_lists(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", kind)
    assert code == 0
    expected = {
        "methods": sorted(METHODS),
        "datasets": ["digits", "cifar100", "tinyimagenet", "imagenet100", "cub", "folder"],
        "backbones": ["digits-vit", "facebook/dino-vitb16"],
        "recipes": ["digits/goal", "cifar100/goal"],
    }[kind]
    assert all(name in out for name in expected)


def test_pretrain_makes_a_backbone_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["width=16", "depth=2", "heads=2", "epochs=2", "prototypes=8"]
    flags = [f"pretrain.{text}" for text in tiny]
    where = str(tmp_path / "vit")
    code, out, _ = run(capsys, "pretrain", "--out", where, "--set", *flags)
    assert code == 0 and where in out.replace("\n", "")
    out_folder = str(tmp_path / "run")
    code, _, _ = run(capsys, "run", "--method", "kmeans", "--backbone", where, "--out", out_folder)
    assert code == 0
