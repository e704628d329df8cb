"""The shelves of a bank are found, listed, and cleared without touching other files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from goal.backbone.trunk import Trunk
from goal.bank.bank import BankSettings, bank_root
from goal.bank.shelf import clear, inspect
from tests.bank.helpers import (
    CLEAN,
    RECORD_BYTES,
    ROW,
    make_images,
    make_trunk,
    open_bank,
    shared_trunk,
)


def test_where_the_bank_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GOAL_CACHE", raising=False)
    assert bank_root(BankSettings()) == tmp_path / "home" / ".cache" / "goal" / "bank"
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "cache"))
    assert bank_root(BankSettings()) == tmp_path / "cache" / "bank"
    assert bank_root(BankSettings(folder="~/mine")) == tmp_path / "home" / "mine" / "bank"


def test_inspect_lists_the_shelves(tmp_path: Path) -> None:
    assert inspect(tmp_path / "bank") == []
    open_bank(tmp_path, make_images(3), views=1)
    shelves = inspect(tmp_path / "bank")
    assert {shelf.about["view"] for shelf in shelves} == {CLEAN, 0}
    for shelf in shelves:
        assert shelf.rows == 3
        assert shelf.about["trunk"] == shared_trunk().fingerprint()
        assert shelf.about["transform"].count("24") == 1
        on_disk = sum(path.stat().st_size for path in shelf.folder.iterdir())
        assert shelf.size == on_disk > 3 * (ROW + RECORD_BYTES)
    (shelves[0].folder / "about.json").write_text("{")
    assert [shelf.about for shelf in inspect(tmp_path / "bank")] == [{}, shelves[1].about]


def whole_name(trunk: Trunk) -> str:
    return trunk.fingerprint()


def name_of_folder(trunk: Trunk) -> str:
    return trunk.fingerprint()[:16]


def first_letters(trunk: Trunk) -> str:
    return trunk.fingerprint()[:6]


@pytest.mark.parametrize("name", [whole_name, name_of_folder, first_letters])
def test_clear_deletes_the_shelves_of_the_named_trunk(
    name: Callable[[Trunk], str], tmp_path: Path
) -> None:
    images, mine, other, root = make_images(2), shared_trunk(), make_trunk(1), tmp_path / "bank"
    open_bank(tmp_path, images)
    open_bank(tmp_path, images, trunk=other)
    assert mine.fingerprint()[:6] != other.fingerprint()[:6]
    size = sum(shelf.size for shelf in inspect(root) if shelf.about["trunk"] == mine.fingerprint())
    assert clear(root, name(mine)) == size > 0
    assert {shelf.about["trunk"] for shelf in inspect(root)} == {other.fingerprint()}
    assert open_bank(tmp_path, images, trunk=other).computed == 0
    assert open_bank(tmp_path, images).computed == 2 * 3


def test_clear_leaves_foreign_files_alone(tmp_path: Path) -> None:
    images, root = make_images(2), tmp_path / "bank"
    open_bank(tmp_path, images)
    trunk = inspect(root)[0].folder.parent
    foreign = [root / "notes.txt", trunk / "notes.txt", trunk / "mine" / "a.txt", root / "x" / "y"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("keep me")
    assert clear(root, "no-such-trunk") == 0
    assert len(inspect(root)) == 3
    assert clear(root) > 0
    assert inspect(root) == []
    assert all(path.read_text() == "keep me" for path in foreign)
    assert open_bank(tmp_path, images).computed == 2 * 3
