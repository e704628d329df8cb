"""Which files are images, told without ending at the first that is none."""

import os
from pathlib import Path

import pytest
from PIL import Image

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data import screening
from goal.data.own_images import from_files
from goal.data.screening import screen, screen_below, screen_classes
from tests.data.helpers import write_image


def test_a_tree_is_listed_sorted_and_bad_files_come_with_reasons(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "a.png", "b/deep/1.png", ".hidden/3.png", ".4.png"):
        write_image(tmp_path / name)
    write_image(tmp_path / "picture without suffix")
    (tmp_path / "empty.png").touch()
    (tmp_path / "notes.txt").write_text("hello")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)

    found = screen_below(tmp_path, Reporter())
    names = [str(path.relative_to(tmp_path)) for path in found.paths]
    assert names == ["a.png", "b/2.jpg", "b/deep/1.png", "picture without suffix"]
    reasons = {path.name: reason for path, reason in found.skipped}
    unread = {"empty.png", "notes.txt", "pipe.jpg", "gone.png"}
    assert reasons.keys() == unread | {".hidden", "loop"}
    assert "begins with a dot" in reasons[".hidden"] and "link to a folder" in reasons["loop"]
    assert reasons["empty.png"] == "empty file"
    assert reasons["pipe.jpg"] == "not a regular file"
    assert "No such file" in reasons["gone.png"]


def test_class_folders_that_are_links_are_listed_and_not_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "secret" / "1.png")
    labelled = tmp_path / "labelled"
    labelled.mkdir()
    (labelled / "dog").symlink_to(tmp_path / "secret")
    with pytest.raises(GoalError, match="links, which are not followed"):
        screen_classes(labelled, Reporter())
    write_image(labelled / "cat" / "1.png")
    (labelled / ".cow").mkdir()
    classes = screen_classes(labelled, Reporter())
    assert list(classes) == ["cat"] and len(classes["cat"].paths) == 1
    told = {path.name: reason for path, reason in classes["cat"].skipped}
    assert "begins with a dot" in told[".cow"] and "link to a folder" in told["dog"]


def test_an_enormous_image_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goal.data.decoding.MOST_PIXELS", 15)
    found = screen([write_image(tmp_path / "a.png", side=4)], Reporter())
    assert found.paths == [] and "4 x 4 pixels" in found.skipped[0][1]


def test_many_files_in_batches_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screening, "_AT_ONCE", 7)
    Image.new("RGB", (2, 2)).save(tmp_path / "0.png")
    paths = [tmp_path / f"{number}.png" for number in range(50)]
    for path in paths[1:]:
        path.hardlink_to(paths[0])
    assert screen(paths, Reporter()).paths == paths


def test_classes_are_folders_and_each_needs_an_image(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "1.png")
    write_image(tmp_path / "dog" / "deep" / "1.png")
    found = screen_classes(tmp_path, Reporter())
    assert list(found) == ["cat", "dog"] and len(found["dog"].paths) == 1
    (tmp_path / "cow").mkdir()
    (tmp_path / "cow" / "a.png").touch()
    with pytest.raises(GoalError, match=r"cow holds no readable image \(1 files skipped\)"):
        screen_classes(tmp_path, Reporter())
    with pytest.raises(GoalError, match="one folder of images per class"):
        screen_classes(tmp_path / "dog" / "deep", Reporter())
    with pytest.raises(GoalError, match="There is no folder"):
        screen_classes(tmp_path / "none", Reporter())
    with pytest.raises(GoalError, match="There is no file or folder"):
        screen_below(tmp_path / "none", Reporter())


def test_names_that_steer_terminals_are_spelt_out(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a\x1b[2J.png")
    given = from_files(screen([path, tmp_path / "b\x07.png"], Reporter()))
    assert given.names == [f"{tmp_path}/a\\x1b[2J.png"]
    assert given.skipped[0][0] == f"{tmp_path}/b\\x07.png"


def test_hidden_class_folders_are_listed_as_skipped(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/1.png", ".cow/1.png"):
        write_image(tmp_path / name)
    found = screen_classes(tmp_path, Reporter())
    assert list(found) == ["cat", "dog"]
    [(path, reason)] = [entry for screened in found.values() for entry in screened.skipped]
    assert path == tmp_path / ".cow" and "begins with a dot" in reason


def test_class_folders_that_are_no_text_are_spelt_out(tmp_path: Path) -> None:
    write_image(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")) / "1.png")
    [name] = screen_classes(tmp_path, Reporter())
    assert name == "caf\\udce9" and name.encode()


def test_a_lack_of_memory_is_no_reason_to_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(path: object) -> None:
        raise MemoryError

    monkeypatch.setattr(screening, "opened", starve)
    with pytest.raises(GoalError, match=r"not enough memory to look .*a\.png"):
        screen([write_image(tmp_path / "a.png")], Reporter())
