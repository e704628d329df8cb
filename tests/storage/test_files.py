"""Files are written whole or not at all, and come back as they were."""

from pathlib import Path
from typing import Any

import pytest

from goal.common.errors import GoalError
from goal.storage.files import (
    read_jsonl,
    replacing,
    write_bytes,
    write_json,
    write_jsonl,
    write_text,
)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_fails_half_way_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    raised = GoalError if isinstance(error, OSError) else type(error)
    with pytest.raises(raised), replacing(path) as stream:
        stream.write(b"ne")
        stream.flush()
        assert path.read_text() == "old"  # readers never meet half a file
        raise error
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_failing_sync_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "a.bin"
    write_bytes(path, b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GoalError, match=r"Cannot write .*a\.bin: no space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_text_and_records_come_back(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "naïve ⊕")
    assert (tmp_path / "a.txt").read_bytes() == "naïve ⊕".encode()
    records: list[dict[str, Any]] = [{"a": 1, "name": "zwei\u2028\n€"}, {}, {"b": [None, 0.1]}]
    write_jsonl(tmp_path / "a.jsonl", records)
    assert read_jsonl(tmp_path / "a.jsonl") == records
    assert len((tmp_path / "a.jsonl").read_bytes().splitlines()) == 3
    write_json(tmp_path / "a.json", {"a": [1]})
    assert (tmp_path / "a.json").read_text() == '{\n "a": [\n  1\n ]\n}\n'
