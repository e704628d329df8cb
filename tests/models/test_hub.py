"""Pushing to a hub and reading from it, against a small hub on this machine's loopback."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.models.hub import is_hub_id, pull, push
from goal.models.model import Model
from goal.models.pushed import ABOUT, TENSORS
from tests.models.digit_folders import fitted, screened, write_digits

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What of a hub's interface a push and a fetch need; files are kept in memory."""

    files: ClassVar[dict[str, bytes]] = {}
    made: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/api/repos/create":
            self.made.append(json.loads(body))
            self._json({"url": f"http://{self.headers['host']}/user/shop"})
        elif self.path == "/api/validate-yaml":  # the card's metadata
            self._json({"errors": [], "warnings": []})
        elif self.path == "/api/models/user/shop/preupload/main":
            asked = [entry["path"] for entry in json.loads(body)["files"]]
            plain = [
                {"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in asked
            ]
            self._json({"files": plain, "commitOid": SHA})
        elif self.path.startswith("/api/models/user/shop/commit/main"):
            for line in body.splitlines():
                self._commit(json.loads(line))
            url = f"http://{self.headers['host']}/user/shop/commit/{SHA}"
            self._json({"commitUrl": url, "commitOid": SHA, "success": True})
        else:
            self._json({"error": self.path}, 404)

    def _commit(self, entry: dict[str, Any]) -> None:
        value = entry["value"]
        if entry["key"] == "file":
            self.files[value["path"]] = base64.b64decode(value["content"])
        elif entry["key"] == "deletedFile":
            del self.files[value["path"]]

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        path = self.path.partition("?")[0]
        name = path.removeprefix(f"/user/shop/resolve/{SHA}/")
        if path.startswith("/api/models/user/shop/revision/") or path == "/api/models/user/shop":
            siblings = [{"rfilename": name} for name in self.files]
            self._json({"id": "user/shop", "sha": SHA, "siblings": siblings}, body=body)
        elif path.startswith("/api/models/user/shop/tree/"):
            self._json(
                [
                    {"type": "file", "path": n, "size": len(c), "oid": SHA}
                    for n, c in self.files.items()
                ],
                body=body,
            )
        elif name in self.files:
            self._answer(self.files[name], 200, body, f'"{hash(self.files[name]):x}"')
        else:
            self._json({"error": "not found"}, 404, body)

    def _json(self, content: Any, status: int = 200, body: bool = True) -> None:
        self._answer(json.dumps(content).encode(), status, body, None)

    def _answer(self, content: bytes, status: int, body: bool, etag: str | None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if etag is not None:
            self.send_header("etag", etag)
            self.send_header("x-repo-commit", SHA)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "hf_stub")
    Hub.files.clear()
    Hub.made.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_there_and_back(tmp_path: Path, endpoint: str) -> None:
    model = fitted(tmp_path / "shop", tmp_path / "labelled")
    model.discover(screened(write_digits(tmp_path / "week", {4: range(12)})), 1)
    push(model, "user/shop", endpoint=endpoint, pictures=True)
    assert Hub.made[0]["name"] == "shop" and Hub.made[0]["organization"] == "user"
    assert Hub.made[0].get("private") is True or Hub.made[0].get("visibility") == "private"
    assert {name.partition("/")[0] for name in Hub.files} == {
        *("README.md", ABOUT, TENSORS, "pictures")
    }
    push(model, "user/shop", endpoint=endpoint)
    assert set(Hub.files) == {"README.md", ABOUT, TENSORS}  # the pictures are gone again
    pull("user/shop", tmp_path / "again", endpoint=endpoint)
    week = screened(tmp_path / "week")
    ours, theirs = model.look(week)[1], Model(tmp_path / "again").look(week)[1]
    np.testing.assert_array_equal(ours, theirs)


def test_without_a_hub_a_message_says_what_to_do(tmp_path: Path, endpoint: str) -> None:
    model = fitted(tmp_path / "shop", tmp_path / "labelled")
    with pytest.raises(GoalError, match=r"(?s)Cannot push to other/shop .*\./FOLDER"):
        push(model, "other/shop", endpoint=endpoint)
    with pytest.raises(GoalError, match=r"Cannot fetch user/none"):
        pull("user/none", tmp_path / "again", endpoint=endpoint)
    with pytest.raises(GoalError, match=r"Nothing was fetched"):
        pull("user/shop", tmp_path / "again", endpoint=endpoint, download=False)
    assert not (tmp_path / "again").exists()


def test_a_folder_is_told_from_a_hub() -> None:
    assert [
        is_hub_id(text) for text in ("user/shop", "./shop", "/a/b", "~/shop", "shop", "a/b/c")
    ] == [True, False, False, False, False, False]
