"""File systems that know neither syncing of folders nor locks."""

import errno
import os
import stat
from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.storage import files
from goal.storage.locks import locked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="only there are folders synced")


def break_folder_sync(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    fsync = os.fsync

    def broken(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr("os.fsync", broken)


def break_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def broken(handle: object, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", broken)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_folder_that_cannot_be_synced_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    break_folder_sync(monkeypatch, code)
    files.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_disk_that_fails_after_the_rename_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("old")
    break_folder_sync(monkeypatch, errno.EIO)
    with pytest.raises(GoalError, match="is in place, but the disk does not confirm") as caught:
        files.write_text(tmp_path / "a.txt", "new")
    assert "unharmed" not in str(caught.value)
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_without_locks_files_are_written_and_folders_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    break_locks(monkeypatch, code)
    young, old = (tmp_path / f".a.goal-{digit * 16}.tmp" for digit in "01")
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    files.write_text(tmp_path / "a.txt", "new")
    assert (
        young.exists() and not old.exists()
    )  # nobody can tell whether the young one's writer lives
    for _ in range(2):
        with pytest.raises(GoalError, match="has no file locks"), locked(tmp_path / "run"):
            pass
    monkeypatch.undo()
    with locked(tmp_path / "run"):  # what the refusal left behind blocks nobody
        pass
