"""The server as a process: where it listens, what it prints, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goal.cli import main
from goal.review.server import HOST


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`goal review` of a folder, and the address that it prints."""
    command = [sys.executable, "-m", "goal", "review", "--model", str(folder), *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if found := re.search(r"http://\S+", line):
                    yield process, found[0]
                    break
            else:
                pytest.fail("".join(lines))
        finally:
            process.kill()


def status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def others() -> list[str]:
    """Addresses of this machine beside 127.0.0.1."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        found = set()
    return sorted({address for address in found if ":" not in address} - {HOST})


def test_the_server_listens_on_this_machine_only(folder: Path) -> None:
    with running(folder) as (process, address):
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=[\w-]{40,}", address)
        assert found is not None
        assert status(address.partition("?")[0]) == 401
        for other in others():
            with pytest.raises(OSError):
                socket.create_connection((other, int(found[1])), timeout=5).close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_restarted_server_listens_where_it_did(folder: Path) -> None:
    with running(folder) as (process, first):
        process.kill()
        process.wait()
    with running(folder) as (_, second):
        assert second.partition("?")[0] == first.partition("?")[0]
        assert second != first


def test_a_port_in_use_is_an_error_that_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as stop:
            main(["review", "--model", str(folder), "--port", str(port)])
    assert stop.value.code == 1
    assert f"Port {port} cannot be used" in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_get_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("goal.review")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit):
        main(["review", "--model", str(folder)])
    assert "goal-cgcd[review]" in capsys.readouterr().err


def test_a_folder_without_a_model_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["review", "--model", str(tmp_path)])
    assert "holds no model" in capsys.readouterr().err
