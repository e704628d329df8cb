"""Who is let in: the browser that showed the token, asked from the page itself, and nobody else."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from goal.pages.html import asset
from goal.review.guard import Guard
from goal.review.routes import ASSETS, application
from goal.review.server import make_desk
from goal.review.session import Session
from tests.review.conftest import HERE, PORT, Opened, open_page

EVERYWHERE = (
    *("/", "/assets/review.js", "/thumb/" + "0" * 32, "/image/" + "0" * 32, "/api/version"),
    *("/api/state", "/api/images", "/api/members", "/api/compare", "/api/similar", "/api/map"),
    *("/api/history", "/nowhere"),
)


def stranger(opened: Opened) -> TestClient:
    guard = Guard(application(opened.desk), PORT, opened.session)
    return TestClient(guard, base_url=HERE, follow_redirects=False)


def test_nobody_sees_anything_without_the_cookie(opened: Opened) -> None:
    client = stranger(opened)
    for path in EVERYWHERE:
        assert client.get(path).status_code == 401, path
    for path in ("/api/act", "/api/search"):
        answer = client.post(path, json={}, headers={"origin": HERE})
        assert answer.status_code == 401, path
    client.cookies.set(f"goal-review-{PORT}", "a guess")
    assert client.get("/api/state").status_code == 401


def test_the_token_works_once_and_becomes_a_strict_cookie(folder: Path) -> None:
    session = Session(folder)
    guard = Guard(application(make_desk(open_page(folder).model)), PORT, session)
    client = TestClient(guard, base_url=HERE, follow_redirects=False)
    token = session.token
    assert client.get("/", params={"token": token[:-1] + "!"}).status_code == 401
    answer = client.get("/", params={"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and token not in cookie
    other = TestClient(guard, base_url=HERE, follow_redirects=False)
    assert other.get("/", params={"token": token}).status_code == 401
    assert client.get("/", params={"token": token}).status_code == 303  # its own browser again
    assert client.get("/").status_code == 200


def test_a_restarted_server_knows_the_cookie_and_an_empty_cache_does_not(
    folder: Path, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again() -> TestClient:
        guard = Guard(application(opened.desk), PORT, Session(folder))
        return TestClient(guard, base_url=HERE, cookies=dict(opened.client.cookies))

    assert again().get("/api/version").status_code == 200
    kept = "".join(path.read_text() for path in (tmp_path / "cache").rglob("*.json"))
    assert kept and not any(value in kept for value in opened.client.cookies.values())
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "another"))
    assert again().get("/api/version").status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", f"[::1]:{PORT}"],
)
def test_another_name_of_this_machine_is_refused(opened: Opened, host: str) -> None:
    for path in EVERYWHERE:
        assert opened.client.get(path, headers={"host": host}).status_code == 421, path


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {},
        {"origin": HERE, "sec-fetch-site": "cross-site"},
        {"origin": HERE, "sec-fetch-site": "same-site"},
    ],
)
def test_another_site_changes_nothing(opened: Opened, headers: dict[str, str]) -> None:
    body = {"kind": "rename", "version": opened.version, "classes": [3], "name": "stolen"}
    answer = opened.client.post("/api/act", json=body, headers=headers)
    assert answer.status_code == 403
    assert "stolen" not in opened.names()


def test_another_site_reads_nothing(opened: Opened) -> None:
    for path in EVERYWHERE[1:]:
        for name, value in (("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")):
            assert opened.client.get(path, headers={name: value}).status_code == 403
    arriving = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert opened.client.get("/", headers=arriving).status_code == 200  # a link to the page


def test_every_answer_forbids_foreign_scripts_and_frames(opened: Opened) -> None:
    for path in EVERYWHERE:
        headers = opened.client.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["style-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_the_page_has_no_script_or_style_of_its_own_and_asks_for_nothing_else(
    opened: Opened,
) -> None:
    page = opened.client.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)
    asked = re.findall(r"(?:src|href)='([^']+)'", page)
    assert asked and all(path.startswith("/assets/") for path in asked)
    for name in ASSETS:
        assert opened.client.get(f"/assets/{name}").text == str(asset(name))
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", asset(name)), name
    for name in ("report.js", "../html.py", "%2e%2e/html.py", "nothing"):
        assert opened.client.get(f"/assets/{name}").status_code == 404
