"""Nothing in our folders is written, read or deleted through a link that leads away."""

import os
import threading
from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.storage import files, folders
from goal.storage.locks import Busy, held, locked


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside the folder that a stranger made."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def test_a_planted_neighbour_is_not_written_through(folder: Path, victim: Path) -> None:
    (folder / ".report.html.tmp").symlink_to(victim)
    (folder / "report.html").symlink_to(victim)
    files.write_text(folder / "report.html", "evil\nlines")
    assert victim.read_text() == "precious"
    assert not (folder / "report.html").is_symlink()
    assert (folder / "report.html").read_text() == "evil\nlines"


def test_the_neighbour_has_another_name_each_time(folder: Path) -> None:
    names = set()
    for _ in range(20):
        with files.replacing(folder / "a.txt") as stream:
            (hidden,) = [path.name for path in folder.iterdir() if path.name != "a.txt"]
            names.add(hidden)
            stream.write(b"x")
    assert len(names) == 20 and all(map(files.is_leftover, names))


def test_guessed_names_make_another_try_or_an_error_and_no_write(
    folder: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    (folder / f".a.txt.goal-{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(GoalError, match="File exists"):
        files.write_text(folder / "a.txt", "evil")
    assert victim.read_text() == "precious"


def test_a_lock_is_no_link(folder: Path, victim: Path) -> None:
    (folder / ".lock").symlink_to(victim)
    with pytest.raises(GoalError, match="is a link"), locked(folder):
        pass
    assert victim.read_text() == "precious"


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_stay(
    folder: Path, victim: Path
) -> None:
    dead, link = (folder / f".a.goal-{digit * 16}.tmp" for digit in "01")
    dead.write_text("half")
    link.symlink_to(victim)
    foreign = folder / ".a.tmp"
    foreign.write_text("mine")
    with files.replacing(folder / "slow.txt") as stream:
        stream.write(b"slow")
        files.write_text(folder / "quick.txt", "quick")  # sweeps
        assert not dead.exists()
        assert len([path for path in folder.iterdir() if files.is_leftover(path.name)]) == 2
    assert (folder / "slow.txt").read_text() == "slow"
    assert victim.read_text() == "precious" and foreign.exists()


def test_of_many_writers_the_last_one_wins_whole(folder: Path) -> None:
    path = folder / "a.bin"
    contents = [bytes([number]) * 200_000 for number in range(6)]

    def write(content: bytes) -> None:
        for _ in range(5):
            files.write_bytes(path, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() in contents
    assert [*folder.iterdir()] == [path]


def test_links_that_lead_out_are_refused_and_others_are_not(folder: Path, victim: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "real.json").write_text("{}")
    (folder / "out.json").symlink_to(victim)
    (folder / "in.json").symlink_to(folder / "deep" / "real.json")
    (folder / "away").symlink_to(victim.parent)
    (folder / "circle").symlink_to(folder / "circle")
    assert files.read_json(folder / "in.json") == {}
    with pytest.raises(GoalError, match="leads out"):
        files.read_json(folder / "out.json")
    assert files.read_text(folder / "out.json", given=True) == "precious"
    for name in ("out.json", "away/victim", "../victim", str(victim), "circle", "a\0b"):
        with pytest.raises(GoalError, match="Refused to use"):
            files.inside(folder, name)
    for name in ("in.json", "deep/real.json", "not/there/yet"):
        assert files.inside(folder, name) == folder / name


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and devices")
def test_pipes_and_devices_are_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    for path in (folder / "pipe.json", Path("/dev/zero")):
        with pytest.raises(GoalError, match="not a regular file"):
            files.read_bytes(path)
    with pytest.raises(GoalError, match="refused to write there"):
        files.open_own(folder / "pipe.json")
    with pytest.raises(GoalError, match="Is a directory"):
        files.read_bytes(folder)


def test_sizes_are_bounded_before_reading(folder: Path) -> None:
    huge = folder / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(GoalError, match="larger than 67,108,864 bytes"):
        files.read_json(huge)
    (folder / "a").write_bytes(b"12345")
    assert files.read_bytes(folder / "a", 5) == b"12345"
    with pytest.raises(GoalError, match="larger than 4 bytes"):
        files.read_bytes(folder / "a", 4)


def test_what_is_written_in_place_has_no_second_name(folder: Path, victim: Path) -> None:
    os.link(victim, folder / "tokens.bin")
    with pytest.raises(GoalError, match="second name"):
        files.open_own(folder / "tokens.bin")
    assert victim.read_text() == "precious"


def test_removing_leaves_what_links_lead_to(folder: Path, victim: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "link").symlink_to(victim.parent)
    folders.remove(folder, "work")
    assert not (folder / "work").exists() and victim.read_text() == "precious"
    (folder / "work").symlink_to(victim.parent)
    with pytest.raises(GoalError, match="leads out"):
        folders.remove(folder, "work/folder")
    folders.remove(folder, "work")
    assert not (folder / "work").is_symlink() and victim.read_text() == "precious"
    folders.remove(folder, "work")


def test_a_lock_keeps_others_out(folder: Path) -> None:
    with held(folder / ".lock"):
        with pytest.raises(Busy), held(folder / ".lock", wait=False):
            pass
        with pytest.raises(GoalError, match="Another process is working"), locked(folder):
            pass
    with locked(folder), pytest.raises(OSError, match="of the body"):
        raise OSError("of the body")
