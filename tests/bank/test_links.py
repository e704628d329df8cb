"""A bank from a stranger: nothing is truncated, made or deleted behind its links."""

import os
from pathlib import Path

import pytest

from goal.bank.shelf import clear, damage, inspect
from goal.common.errors import GoalError
from goal.data.images import ArrayImages
from tests.bank.helpers import make_images, open_bank


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    return folder / "thesis.txt"


def filled(tmp_path: Path, images: ArrayImages) -> Path:
    """The first shelf of a bank that holds the images."""
    open_bank(tmp_path / "cache", images)
    return inspect(tmp_path / "cache" / "bank")[0].folder


@pytest.mark.parametrize("name", ["tokens.bin", "rows.bin"])
def test_a_linked_file_is_not_written_through(tmp_path: Path, victim: Path, name: str) -> None:
    shelf = filled(tmp_path, make_images(2))
    (shelf / name).unlink()
    (shelf / name).symlink_to(victim)
    with pytest.raises(GoalError, match=name):
        open_bank(tmp_path / "cache", make_images(5))
    assert victim.read_text() == "precious"
    assert any(name in problem for problem in damage(shelf))
    clear(tmp_path / "cache" / "bank")
    assert victim.read_text() == "precious" and not shelf.exists()


def test_a_second_name_of_a_file_is_not_truncated(tmp_path: Path, victim: Path) -> None:
    shelf = filled(tmp_path, make_images(2))
    (shelf / "tokens.bin").unlink()
    os.link(victim, shelf / "tokens.bin")
    with pytest.raises(GoalError, match="second name"):
        open_bank(tmp_path / "cache", make_images(5))
    assert victim.read_text() == "precious"


def test_linked_folders_are_neither_cleared_nor_filled(tmp_path: Path, victim: Path) -> None:
    shelf = filled(tmp_path, make_images(2))
    bank, trunk = shelf.parent.parent, shelf.parent
    trunk.rename(tmp_path / "moved")
    trunk.symlink_to(tmp_path / "moved")
    before = sorted((tmp_path / "moved").rglob("*"))
    with pytest.raises(GoalError, match="is a link"):
        clear(bank)
    with pytest.raises(GoalError, match="is a link"):
        open_bank(tmp_path / "cache", make_images(5))
    assert inspect(bank) == [] and sorted((tmp_path / "moved").rglob("*")) == before
    trunk.unlink()
    (tmp_path / "moved").rename(trunk)
    shelf.rename(tmp_path / "shelf")
    shelf.symlink_to(tmp_path / "shelf")
    with pytest.raises(GoalError, match="is a link"):
        open_bank(tmp_path / "cache", make_images(5))
    clear(bank)
    assert (tmp_path / "shelf" / "tokens.bin").exists()


def test_only_files_of_the_bank_are_deleted(tmp_path: Path) -> None:
    shelf = filled(tmp_path, make_images(2))
    bank = shelf.parent.parent
    (shelf / "mine.txt").write_text("keep me")
    other = shelf.parent / "photos"
    other.mkdir()
    (other / "about.json").write_text("{}")
    clear(bank)
    assert sorted(path.name for path in shelf.iterdir()) == ["mine.txt"]
    assert (other / "about.json").exists()
    (shelf / "about.json").write_text("damaged")
    open_bank(tmp_path / "cache", make_images(2))  # rebuilt around what is not ours
    assert (shelf / "mine.txt").read_text() == "keep me" and damage(shelf) == []


class Replaced(ArrayImages):
    """Images of which one is another when it is decoded than when it was named."""

    def image(self, index: int):  # type: ignore[no-untyped-def]
        if index == 1:
            self.pixels[1] = 255 - self.pixels[0]
        return super().image(index)


def test_an_image_replaced_while_it_is_read_leaves_no_tokens(tmp_path: Path) -> None:
    plain = make_images(3)
    images = Replaced(plain.pixels.copy(), plain.labels)
    first = [images.digest(index) for index in range(3)]
    with pytest.raises(GoalError, match="replaced while"):
        open_bank(tmp_path / "cache", images)
    rows = inspect(tmp_path / "cache" / "bank")[0].folder / "rows.bin"
    assert not rows.exists() or first[1] not in rows.read_bytes()
