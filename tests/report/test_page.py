"""The report page: says what it must, shows names as text, asks nothing of the network."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from goal.errors import GoalError
from goal.report.page import write_report
from tests.report.runs import write_run


class Balanced(HTMLParser):
    """Fails on tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "line", "circle", "polyline"} or tag == "circle":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_self_contained(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [90.0, 80.0, 70.0])
    second = write_run(tmp_path / "b", [80.0, 60.0, 50.0], method="kmeans")
    page = write_report([first, second], tmp_path / "out" / "report.html").read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", page)
    assert "70.0%" in page and "goal, seed 0" in page and "kmeans, seed 0" in page


def test_names_are_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [90.0, 80.0])
    summary = folder / "summary.json"
    attack = "<script>alert(1)</script>"
    summary.write_text(summary.read_text().replace("facebook/dino-vitb16", attack))
    page = write_report([folder], tmp_path / "report.html").read_text()
    assert attack not in page and "&lt;script&gt;" in page


def test_unfinished_or_damaged_runs_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [90.0, 80.0])
    (folder / "results.jsonl").write_text("{")
    with pytest.raises(GoalError, match="damaged"):
        write_report([folder], tmp_path / "report.html")
    (folder / "summary.json").unlink()
    with pytest.raises(GoalError, match="goal resume"):
        write_report([folder], tmp_path / "report.html")
