"""The site is made of the repository's own files, links fit, and the checker sees what is wrong."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from goal.cli import app
from goal.methods.registry import METHODS
from website import methods, notebooks, pages, reference
from website.check import problems

ROOT = pages.ROOT


class _Config(yaml.SafeLoader):
    """Reads mkdocs.yml without mkdocs."""


_Config.add_multi_constructor("", lambda loader, suffix, node: None)
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), _Config)


def nav_entries(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [entry for part in node.values() for entry in nav_entries(part)]
    if isinstance(node, list):
        return [entry for part in node for entry in nav_entries(part)]
    return [node]


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    listed = [entry for entry in nav_entries(CONFIG["nav"]) if entry.endswith(".md")]
    made = {"methods/index.md", "reference/commands.md", "reference/python.md"}
    own = set(pages.sources().values()) | made | set(notebooks.notebooks())
    assert set(listed) <= own and len(listed) == len(set(listed))
    assert {name for name in own if not name.startswith("benchmarks/")} == set(listed)


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False and CONFIG["use_directory_urls"] is False
    assert CONFIG["strict"] is True
    assert not re.search(r"https?://", (ROOT / "mkdocs.yml").read_text())


def test_links_lead_to_pages_of_the_site() -> None:
    page = (
        "[a](policy.md#versions) ![p](images/rooms.svg) [c](../CONTRIBUTING.md) [out](https://x.y)\n"
        "[table](../benchmarks/cifar100/REPRODUCTION.md) [folder](decisions/) [here](#words)\n"
        "[script](../examples/texts.py)\n```text\n[kept](../CONTRIBUTING.md)\n```\n"
    )
    found = pages.translated(page, "faq.md")
    assert "(policy.md#versions)" in found and "(images/rooms.svg)" in found
    assert "(project/contributing.md)" in found and "(https://x.y)" in found
    assert "(benchmarks/cifar100/REPRODUCTION.md)" in found and "(#words)" in found
    assert "folder" in found and "decisions/" not in found  # a folder is no page
    assert "(source/examples/texts.py.md)" in found  # the guide links to it, so it is listed
    assert "```text\n[kept](../CONTRIBUTING.md)\n```" in found
    moved = pages.translated(
        "[table](RESULTS.md) [words](../docs/glossary.md)", "benchmarks/STEP.md"
    )
    assert moved == "[table](RESULTS.md) [words](../glossary.md)"


def test_no_link_of_a_page_is_dead_in_the_repository() -> None:
    dead = [
        f"{name}: {target}"
        for name in pages.sources()
        for target in pages.targets((ROOT / name).read_text())
        for path in [pages.resolved(name, target)]
        # The pages about methods are made when the site is built.
        if path is not None and not path.startswith("docs/methods/")
        if not (ROOT / path).exists()
    ]
    assert dead == []


@pytest.mark.parametrize("name", methods.own_methods())
def test_a_method_page_has_objective_deviations_and_figures(name: str) -> None:
    spec = METHODS[name]
    page = methods.page(name, spec)
    module = ROOT / "src" / (str(spec.where).partition(":")[0].replace(".", "/") + ".py")
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    words = re.findall(r"\w+", text)
    assert re.findall(r"\w+", methods.formatted(text).replace("```text", "")) == words
    assert "## Our figures" in page and "## Published figures" in page
    assert page.count("```") % 2 == 0


def test_figures_on_a_method_page_are_those_of_the_tables() -> None:
    page = methods.page("happy", METHODS["happy"])
    table = (ROOT / "benchmarks/cifar100/REPRODUCTION.md").read_text()
    row = next(line for line in table.splitlines() if line.startswith("| happy |"))
    figures = [cell.strip() for cell in row.split("|")[2:10]]
    assert f"| happy | {' | '.join(figures)} |" in page
    # GOAL's Table 1 and 2, CIFAR-100: All 69.0 on average.
    assert re.search(r"\| cifar100 \| 5 \| seen/unseen \| [\d.]+ \| 69 \|", page)
    assert "| cifar100 | 5 | base/novel | 91 | 72.1 | 83.2 | 54 |" in methods.page(
        "goal", METHODS["goal"]
    )
    assert methods.page("kmeans", METHODS["kmeans"]).endswith("None on this protocol.\n")


def test_every_command_is_in_the_reference() -> None:
    page = reference.commands()
    for name in app:
        if not name.startswith("-"):
            assert f"## goal {name}\n" in page, name
    assert "`--model PATH`" in page


def test_every_module_is_in_the_reference() -> None:
    text = reference.estimators() + "".join(map(reference.room, reference.rooms()))
    for path in (ROOT / "src" / "goal").rglob("*.py"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if "__" not in path.stem and len(parts) > 1 and parts[1] in reference.rooms():
            assert text.count(f"::: {'.'.join(parts)}\n") == 1, path


def test_a_notebook_becomes_a_page(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# T\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "QUJD\n"}},
                {"output_type": "stream", "name": "stderr", "text": ["warned"]},
            ],
        },
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    page = notebooks.page(path)
    assert page.startswith("# T\ntext\n\n") and "```python\nprint(1)\n```" in page
    assert "```text\n1\n```" in page and "(data:image/png;base64,QUJD)" in page
    assert "warned" not in page


def write_site(folder: Path, body: str) -> Path:
    folder.mkdir()
    (folder / "index.html").write_text(f"<html><body>{body}</body></html>")
    (folder / "other.html").write_text("<h1 id='top'>Other</h1>")
    (folder / "a.js").write_text("")
    return folder


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<a href='gone.html'>", "leads to gone.html, which does not exist"),
        ("<a href='other.html#no'>", "leads to other.html#no, but that page has no such place"),
        ("<a href='#no'>", "leads to #no"),
        ("<script src='https://cdn.example/x.js'></script>", "loads https://cdn.example/x.js from"),
        ("<img src='//cdn.example/x.png'>", "loads //cdn.example/x.png from another place"),
        ("<link rel='stylesheet' href='https://fonts.example/f.css'>", "from another place"),
        ("<img src='gone.png'>", "loads gone.png, which does not exist"),
        ("<iframe src='gone.html'></iframe>", "loads gone.html"),
    ],
)
def test_the_checker_sees(tmp_path: Path, body: str, said: str) -> None:
    (found,) = problems(write_site(tmp_path / "site", body))
    assert found.startswith("index.html: ") and said in found


def test_the_checker_lets_good_pages_be(tmp_path: Path) -> None:
    good = (
        "<a href='other.html#top'></a><a href='/other.html'></a><a href='https://x.example'></a>"
        "<script src='a.js'></script><img src='data:image/png;base64,AA'><a href='mailto:a@b'></a>"
        "<link rel='canonical' href='https://x.example/'><a href='a%2ejs?v=1'></a>"
    )
    site = write_site(tmp_path / "site", good)
    assert problems(site) == []
    (site / "a.css").write_text("a{background:url(https://x.example/a.png)} b{src:url('data:x')}")
    assert problems(site) == ["a.css: loads https://x.example/a.png from another place"]
    assert problems(tmp_path / "none") == [f"{tmp_path / 'none'} holds no page"]
