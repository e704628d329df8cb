"""The notebooks run from top to bottom, and are kept with what they show, without warnings."""

import json
from pathlib import Path

import pytest
from nbclient import execute
from nbformat import reads

from website.notebooks import FOLDER

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own-images", "reproduce-a-table"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = reads(path.read_text(encoding="utf-8"), 4)
    execute(notebook, cwd=str(tmp_path), timeout=600)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_output(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert len(outputs) >= 3
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not [output for output in outputs if output["output_type"] == "error"]
