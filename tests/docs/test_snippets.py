"""What README and documentation tell people to type works: each page is typed in, top to bottom."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from goal.cli import main
from goal.counting.estimators import Count
from goal.learning.learner import Learner
from tests.docs.blocks import NOT_RUN, REFUSED, ROOT, Snippet, pages, snippets
from tests.models.digit_folders import write_digits
from tests.small_run import as_flags

PAGES = [page for page in pages() if any(s.why_not is None for s in snippets(page))]
EXPERIMENTS = ("run", "bench", "sweep")
GO_ON = "resume"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that pages speak of, as digits: 0-3 with labels, then weeks with new ones."""
    folder = tmp_path_factory.mktemp("images")
    write_digits(folder / "labelled", dict.fromkeys(range(4), range(60)), labelled=True)
    write_digits(folder / "photos", dict.fromkeys(range(4), range(4)), labelled=True)
    known = dict.fromkeys(range(4), range(60, 70))
    write_digits(folder / "week-1", {**known, 4: range(60), 5: range(60)})
    write_digits(folder / "week-2", {0: range(70, 75), 4: range(60, 65), 6: range(60)})
    return folder


@pytest.fixture(scope="module")
def shop(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of them, for pages that begin with one."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    words = ["--model", str(folder), "--backbone", "digits-vit"]
    assert exit_code(["fit", str(images / "labelled"), *words]) == 0
    assert exit_code(["discover", str(images / "week-1"), "--model", str(folder)]) == 0
    return folder


BEGIN_WITH_A_MODEL = ("docs/guide/sharing.md",)


@pytest.fixture
def desk(
    images: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    """An empty place with those folders, where the default backbone is the embedded one."""
    shutil.copytree(images, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setattr("goal.models.settings.DEFAULT_EMBEDDER", "digits-vit")
    # How well it counts is tested elsewhere; the pages tell of two new classes.
    monkeypatch.setattr(Learner, "count_new", lambda self, tokens, index: Count(2))
    return monkeypatch


def exit_code(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, desk: pytest.MonkeyPatch, shop: Path) -> None:
    if page in BEGIN_WITH_A_MODEL:
        shutil.copytree(shop, "shop")
    names: dict[str, Any] = {}
    for snippet in snippets(page):
        if snippet.why_not is not None:
            continue
        if snippet.kind == "python":
            exec(compile(snippet.text, page, "exec"), names)
        else:
            type_in(snippet)


def type_in(snippet: Snippet) -> None:
    words = shlex.split(snippet.text)
    assert words[0] == "goal", f"no test knows how to run this, and none says why not: {snippet}"
    words = [word for word in words[1:] if word != "--download"]  # tests use no network
    refused = any(part in snippet.text for part in REFUSED)
    small = as_flags() if words[0] in EXPERIMENTS and not refused else []
    # 2 would be words that cannot be read.
    assert exit_code([*words, *small]) == (1 if refused else 0), snippet


def test_every_reason_is_needed() -> None:
    every = [snippet for page in pages() for snippet in snippets(page)]
    assert len(every) > 60 and len(PAGES) > 8
    used = {snippet.why_not for snippet in every}
    assert {reason for _, _, reason in NOT_RUN} <= used
    assert all(any(part in s.text for s in every) for part in REFUSED)
    ran = [snippet for snippet in every if snippet.why_not is None]
    assert len(ran) > len(every) / 2


def test_no_command_hides_in_a_block_of_text() -> None:
    for page in pages():
        plain = re.findall(r"^```(?:text)?\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
        assert not [text for text in plain if re.search(r"^\$ ", text, re.MULTILINE)], page


def test_make_targets_and_modules_that_are_named_exist() -> None:
    every = [snippet.text for page in pages() for snippet in snippets(page)]
    for text in every:
        words = shlex.split(text, comments=True) if "\n" not in text else []
        if words[:1] == ["make"]:
            done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True)
            assert done.returncode == 0, text
        if words[:2] == ["python", "-m"] and words[2].startswith("benchmarks"):
            place = ROOT / words[2].replace(".", "/")
            assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), text
