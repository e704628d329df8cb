"""The steps of a model form a chain: what is missing, exchanged or out of sight is found."""

import os
import shutil
from pathlib import Path

import pytest

from goal.storage import files, manifest
from goal.verify import verify


def add_step(steps: Path, number: int, chained: bool = True) -> None:
    place = steps / f"{number:03d}"
    place.mkdir(parents=True)
    files.write_json(place / "stage.json", {"step": number})
    files.write_text(place / "predictions.csv", f"image,class\na.png,{number}\n")
    before = manifest.seal_of(steps / f"{number - 1:03d}") if number else ""
    names = ["stage.json", "predictions.csv"]
    manifest.seal(place, names, previous=before if chained else None)


@pytest.fixture(params=[True, False], ids=["chained", "as before chains"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    for number in range(3):
        add_step(tmp_path / "model" / "steps", number, request.param)
    return tmp_path / "model"


def problems(folder: Path) -> str:
    return "\n".join(verify(folder).problems)


def test_a_chain_as_written_verifies_whole_and_in_parts(model: Path) -> None:
    assert verify(model).problems == []
    assert len(verify(model).checked) == 9
    assert verify(model / "steps" / "001").problems == []
    add_step(model / "steps", 3)  # a chain that goes on from steps without one
    assert verify(model).problems == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_deleted_step_is_missed(model: Path, number: int) -> None:
    shutil.rmtree(model / "steps" / f"00{number}")
    assert f"{model / 'steps'}/00{number} is missing" in problems(model)


def test_a_copy_of_another_step_is_found(model: Path) -> None:
    shutil.rmtree(model / "steps" / "001")
    shutil.copytree(model / "steps" / "000", model / "steps" / "001")
    assert "001 is a copy of" in problems(model)


def test_a_link_to_another_step_is_found(model: Path) -> None:
    shutil.rmtree(model / "steps" / "002")
    (model / "steps" / "002").symlink_to("001")
    assert "002 is a copy of" in problems(model)


def test_an_emptied_step_is_found(model: Path) -> None:
    for path in (model / "steps" / "000").iterdir():
        path.unlink()
    assert "000/manifest.json is missing" in problems(model)


def test_a_step_of_another_model_is_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        add_step(tmp_path / name / "steps", 0)
    other = tmp_path / "two" / "steps" / "000"
    files.write_text(other / "predictions.csv", "image,class\nb.png,0\n")
    manifest.seal(other, ["stage.json", "predictions.csv"], previous="")
    for name in ("one", "two"):
        add_step(tmp_path / name / "steps", 1)
    assert verify(tmp_path).problems == []
    shutil.rmtree(tmp_path / "one" / "steps" / "001")
    (tmp_path / "two" / "steps" / "001").rename(tmp_path / "one" / "steps" / "001")
    assert "001 does not continue the one before it" in problems(tmp_path)


def test_an_amended_manifest_stays_in_the_chain(tmp_path: Path) -> None:
    for number in range(2):
        add_step(tmp_path / "steps", number)
    last = tmp_path / "steps" / "001"
    files.write_text(last / "page.html", "<html>")
    manifest.amend(last / "page.html")
    assert verify(tmp_path).problems == [] and verify(tmp_path).unlisted == []
    shutil.rmtree(tmp_path / "steps" / "000")
    add_step(tmp_path / "steps", 0, chained=False)
    assert "001 does not continue" in problems(tmp_path)


def test_what_lies_behind_a_link_is_not_taken_for_verified(model: Path, tmp_path: Path) -> None:
    (model / "steps").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "001" / "predictions.csv").write_text("flipped")
    (model / "steps").symlink_to(tmp_path / "elsewhere")
    assert f"{model / 'steps'}: by its name or by a link, it leads out" in problems(model)


def test_a_link_within_is_followed_to_its_own_place(model: Path) -> None:
    (model / "steps").rename(model / "moved")
    (model / "steps").symlink_to("moved")
    assert verify(model).problems == []
    (model / "moved" / "001" / "predictions.csv").write_text("flipped")
    assert "001/predictions.csv has changed" in problems(model)
    (model / "nowhere").symlink_to("not-there")
    assert "link to what is not there" in problems(model)


def test_a_listed_file_that_links_away_is_found(model: Path, tmp_path: Path) -> None:
    place = model / "steps" / "001"
    (place / "predictions.csv").rename(tmp_path / "same.csv")
    (place / "predictions.csv").symlink_to(tmp_path / "same.csv")
    assert "001/predictions.csv: by its name or by a link, it leads out" in problems(model)


def test_an_unreadable_folder_is_a_problem(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def denied(path: str | Path) -> object:
        if str(path).endswith("001"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", denied)  # who runs the tests may be allowed everything
    assert f"Cannot look into {model}/steps/001: Permission denied" in problems(model)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_is_a_problem_and_not_waited_for(model: Path) -> None:
    (model / "steps" / "001" / "predictions.csv").unlink()
    os.mkfifo(model / "steps" / "001" / "predictions.csv")
    assert "not a regular file" in problems(model)


def test_a_vast_file_is_not_gone_through(model: Path) -> None:
    os.truncate(model / "steps" / "001" / "predictions.csv", 1 << 40)  # takes no room
    assert "larger than 8,589,934,592 bytes" in problems(model)
