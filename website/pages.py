"""Which files of the repository are pages of the site, and where links between them lead.

The pages lie in ``docs`` and read well where the repository is hosted, too: they link to each other
and to files outside by relative paths. On the site those files are pages as well, or, if they are
no pages, listings of their text.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?=\))")
_IMAGE = re.compile(r'(?<=src=")(?P<target>[^"]+)(?=")')
_WHOLE_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_LISTED = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
_LISTED |= {".json": "json", ".cff": "yaml"}
_MOST_LISTED = 100_000

# Files outside of docs that are pages.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "examples/plugin/README.md": "guide/plugin-example.md",
}


def outside_pages() -> dict[str, str]:
    """Files outside of ``docs`` that are pages, and their names on the site."""
    tables = sorted((ROOT / "benchmarks").rglob("*.md"))
    found = {path.relative_to(ROOT).as_posix() for path in tables}
    return OUTSIDE | {name: name for name in sorted(found)}


def sources() -> dict[str, str]:
    """All pages made of files, as in the repository, and their names on the site."""
    inside = sorted((ROOT / "docs").rglob("*.md"))
    own = {
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in inside
    }
    return own | outside_pages()


def linked_files() -> dict[str, str]:
    """Other files of the repository that pages link to or show, and their names on the site."""
    pages, found = sources(), {}
    for name in pages:
        for target in targets((ROOT / name).read_text(encoding="utf-8")):
            path = resolved(name, target)
            if path is not None and path not in pages and (ROOT / path).is_file():
                found[path] = _site_name(path)
    return found


def _site_name(path: str) -> str:
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    listed = Path(path).suffix in _LISTED and (ROOT / path).stat().st_size < _MOST_LISTED
    return f"source/{path}.md" if listed else path


def listing(path: str) -> str:
    """A page that shows the text of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    fence = "````"
    kind = _LISTED[Path(path).suffix]
    return f"# {PurePosixPath(path).name}\n\n`{path}`\n\n{fence}{kind}\n{text}{fence}\n"


def translated(markdown: str, site_name: str) -> str:
    """A page with its links as they are on the site.

    A link to what is no page, such as a folder, becomes its text.
    """
    origin = {site: name for name, site in sources().items()}.get(site_name)
    if origin is None:
        return markdown
    places = sources() | linked_files()

    def lead(match: re.Match[str]) -> str:
        return _led(match["target"], origin, site_name, places)

    def text_of_dead(match: re.Match[str]) -> str:
        path = resolved(origin, match["target"])
        dead = path is not None and path not in places
        return match["text"] if dead else match[0]

    def links(text: str) -> str:
        text = _WHOLE_LINK.sub(text_of_dead, text)
        return _IMAGE.sub(lead, _LINK.sub(lead, text))

    return _outside_fences(markdown, links)


def _led(target: str, origin: str, site_name: str, places: dict[str, str]) -> str:
    path = resolved(origin, target)
    if path is None or path not in places:
        return target
    _, hash_, anchor = target.partition("#")
    return os.path.relpath(places[path], posixpath.dirname(site_name) or ".") + hash_ + anchor


def resolved(origin: str, target: str) -> str | None:
    """The file that a link leads to, from the root; None for addresses and places in a page."""
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))


def targets(markdown: str) -> Iterator[str]:
    """What a page links to or shows."""
    found: list[str] = []

    def keep(text: str) -> str:
        found.extend(match["target"] for match in (*_LINK.finditer(text), *_IMAGE.finditer(text)))
        return text

    _outside_fences(markdown, keep)
    yield from found


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Change the text of a page, but nothing in its blocks of code."""
    parts: list[str] = []
    kept: list[str] = []
    fence = None
    for line in markdown.splitlines(keepends=True):
        mark = _FENCE.match(line.lstrip())
        opens = mark is not None and fence is None
        if opens and kept:
            parts.append(change("".join(kept)))
            kept = []
        if fence is None and not opens:
            kept.append(line)
        else:
            parts.append(line)
        if mark is not None:
            fence = mark[1] if fence is None else (None if mark[1] == fence else fence)
    return "".join([*parts, change("".join(kept))])
