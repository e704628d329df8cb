"""Torn files are repaired, and a damaged row is found by its checksum and computed again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from goal.bank.shelf import inspect
from tests.bank.helpers import CLEAN, RECORD_BYTES, ROW, agrees, make_images, open_bank, shelf_of


def test_a_row_that_is_gone_is_an_error_not_noise(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(3), views=1)
    os.truncate(shelf_of(tmp_path, CLEAN) / "tokens.bin", ROW + 5)
    assert len(opened.tokens.clean(torch.tensor([0]))) == 1
    with pytest.raises(OSError, match=r"tokens\.bin was cut short"):
        opened.tokens.clean(torch.tensor([0, 1]))


def extend(path: Path, count: int) -> None:
    with path.open("ab") as stream:
        stream.write(b"\xa5" * count)


def shorten(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


TORN: dict[str, tuple[Callable[[Path], None], int]] = {
    "data beyond the last record": (lambda at: extend(at / "tokens.bin", 3 * ROW + 7), 0),
    "half a record more": (lambda at: extend(at / "rows.bin", RECORD_BYTES // 2), 0),
    "half a record less": (lambda at: shorten(at / "rows.bin", RECORD_BYTES // 2), 1),
    "a record without data": (lambda at: extend(at / "rows.bin", RECORD_BYTES), 0),
    "half a row less": (lambda at: shorten(at / "tokens.bin", ROW // 2), 1),
    "two rows and a half less": (lambda at: shorten(at / "tokens.bin", 5 * ROW // 2), 3),
    "no data": (lambda at: shorten(at / "tokens.bin", 4 * ROW), 4),
    "no file of tokens": (lambda at: (at / "tokens.bin").unlink(), 4),
    "no file of rows": (lambda at: (at / "rows.bin").unlink(), 4),
}


@pytest.mark.parametrize("view", [CLEAN, 0])
@pytest.mark.parametrize("how", TORN)
def test_torn_files_are_repaired(how: str, view: int | str, tmp_path: Path) -> None:
    images = make_images(6)
    open_bank(tmp_path, images, range(4), views=1)
    tear, lost = TORN[how]
    tear(shelf_of(tmp_path, view))
    opened = open_bank(tmp_path, images, range(4), views=1)
    assert opened.computed == lost
    assert agrees(opened, images, range(4))
    larger = open_bank(tmp_path, images, views=1)
    assert larger.computed == 2 * 2
    assert agrees(larger, images)
    for shelf in inspect(tmp_path / "bank"):
        assert (shelf.folder / "rows.bin").stat().st_size == 6 * RECORD_BYTES
        assert (shelf.folder / "tokens.bin").stat().st_size == 6 * ROW
    assert open_bank(tmp_path, images, views=1).computed == 0


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= bits
    path.write_bytes(content)


FLIPS = {
    "normalised token": ("tokens.bin", 2 * ROW + 33),
    "raw CLS": ("tokens.bin", 3 * ROW - 1),
    "digest": ("rows.bin", 2 * RECORD_BYTES + 5),
    "checksum": ("rows.bin", 3 * RECORD_BYTES - 1),
}


@pytest.mark.parametrize("view", [CLEAN, 0])
@pytest.mark.parametrize("where", FLIPS)
def test_a_damaged_row_is_found_and_computed_again(
    where: str, view: int | str, tmp_path: Path
) -> None:
    images = make_images(5)
    open_bank(tmp_path, images, views=1)
    name, offset = FLIPS[where]
    shelf = shelf_of(tmp_path, view)
    flip(shelf / name, offset)

    others = [0, 1, 3, 4]
    unaware = open_bank(tmp_path, images, others, views=1)
    assert unaware.computed == 0 and not unaware.reporter.of("warn")
    assert agrees(unaware, images, others)

    opened = open_bank(tmp_path, images, views=1)
    assert opened.computed == 1
    assert agrees(opened, images)
    if where != "digest":  # a row under another digest is another image's, and merely not found
        [warning] = opened.reporter.of("warn")
        assert str(shelf / "tokens.bin") in warning and "row 2" in warning

    again = open_bank(tmp_path, images, views=1)
    assert again.computed == 0 and not again.reporter.of("warn")
    assert agrees(again, images)


def test_a_damaged_description_is_found(tmp_path: Path) -> None:
    images = make_images(3)
    open_bank(tmp_path, images, views=1)
    shelf = shelf_of(tmp_path, 0)
    about = (shelf / "about.json").read_bytes()
    flip(shelf / "about.json", about.index(b"resize="), bits=0x01)
    opened = open_bank(tmp_path, images, views=1)
    [warning] = opened.reporter.of("warn")
    assert str(shelf) in warning
    assert opened.computed <= 3, "the other shelf is whole"
    assert agrees(opened, images)
    assert (shelf / "about.json").read_bytes() == about
    assert open_bank(tmp_path, images, views=1).computed == 0


def test_no_flipped_byte_gives_wrong_tokens(tmp_path: Path) -> None:
    images, rng = make_images(3), np.random.default_rng(2)
    open_bank(tmp_path / "whole", images, views=1)
    files = [path for path in sorted((tmp_path / "whole").rglob("*.*")) if path.stat().st_size > 0]
    files = [path for path in files if path.is_file()]
    assert {path.name for path in files} == {"about.json", "rows.bin", "tokens.bin"}
    for path in files * 4:
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        damaged = tmp_path / "copy" / path.relative_to(tmp_path / "whole")
        offset, bits = int(rng.integers(path.stat().st_size)), int(rng.integers(1, 256))
        flip(damaged, offset, bits)
        opened = open_bank(tmp_path / "copy", images, views=1)
        assert agrees(opened, images), (path.name, offset, bits)
        assert opened.computed <= (3 if path.name == "about.json" else 1)
        assert open_bank(tmp_path / "copy", images, views=1).computed == 0
        shutil.rmtree(tmp_path / "copy")
