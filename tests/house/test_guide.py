"""The Python on the guide's pages runs."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.models.digit_folders import QUICK, write_digits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "other-tools.md").read_text(encoding="utf-8")
MANIFESTS, _, CLEANLAB = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def doubtful(
    labels: npt.NDArray[np.int64], pred_probs: npt.NDArray[Any], return_indices_ranked_by: str
) -> list[int]:
    """Stand for cleanlab's function: what it demands of its input, and its simplest rule."""
    assert return_indices_ranked_by == "self_confidence"
    assert pred_probs.shape == (len(labels), len(set(labels.tolist())))
    assert set(labels.tolist()) == set(range(pred_probs.shape[1]))
    np.testing.assert_allclose(pred_probs.sum(axis=1), 1, atol=1e-5)
    own = pred_probs[np.arange(len(labels)), labels]
    return [index for index in np.argsort(own).tolist() if own[index] < pred_probs[index].max()]


def test_manifests_of_a_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "fixtures" / "format-1" / "model", tmp_path / "shop")
    write_digits(tmp_path / "week-2", {0: range(2)})
    files = sorted((tmp_path / "week-2").iterdir())
    exec(compile(MANIFESTS, "other-tools.md", "exec"), {})
    labels = json.loads(Path("fiftyone.json").read_text())["labels"]
    assert list(labels) == [file.as_posix() for file in files]
    named = [image["file_name"] for image in json.loads(Path("coco.json").read_text())["images"]]
    assert named == [file.name for file in files]
    assert len(json.loads(Path("tasks.json").read_text())) == len(files) == 2
    assert '<Choice value="two"/>' in Path("labelling.xml").read_text()


def test_cleanlab_is_given_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    package, filters = ModuleType("cleanlab"), ModuleType("cleanlab.filter")
    filters.find_label_issues = doubtful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cleanlab", package)
    monkeypatch.setitem(sys.modules, "cleanlab.filter", filters)
    folder = write_digits(tmp_path / "labelled", dict.fromkeys(range(3), range(9)), labelled=True)
    wrong = sorted((folder / "0").iterdir())[4]
    wrong.rename(folder / "1" / wrong.name)
    small = f"method='kmeans', backbone='digits-vit', settings={QUICK!r}"
    script = CLEANLAB.replace('backbone="facebook/dino-vits16"', small)
    assert script != CLEANLAB
    exec(compile(script, "other-tools.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert f"{Path('labelled') / '1' / wrong.name} looks like 0" in lines
    assert len(lines) < 5  # few of 27 images are doubted
