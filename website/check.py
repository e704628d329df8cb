"""Check a built site: every link leads somewhere, and no page loads anything from another place.

python -m website.check build/site
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that load what they name; a link of these kinds only tells where something is.
_LOADING = {"script", "img", "source", "iframe", "video", "audio", "embed", "object", "input"}
_ONLY_TOLD = {"canonical", "next", "prev", "alternate", "edit"}
_CSS_URL = re.compile(r"url\(\s*['\"]?(?!data:|#)([^'\")]+)")


@dataclass
class _Found(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src", "srcset", "data", "poster"):
            if name in given and (name != "data" or tag == "object"):
                told = tag == "a" or (tag == "link" and given.get("rel") in _ONLY_TOLD)
                loads = not told and (tag in _LOADING or tag == "link")
                (self.loads if loads else self.links).append(given[name])


def problems(site: Path) -> list[str]:
    """What is wrong with a site: one line for each dead link or foreign file."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site} holds no page"]
    found = [
        f"{path.relative_to(site.resolve())}: {wrong}"
        for path, page in pages.items()
        for wrong in _wrong(path, page, pages, site.resolve())
    ]
    for path in sorted(site.rglob("*.css")):
        for target in _CSS_URL.findall(path.read_text(encoding="utf-8")):
            if urlsplit(target).netloc:
                found.append(f"{path.relative_to(site)}: loads {target} from another place")
    return found


def _read(path: Path) -> _Found:
    page = _Found()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _wrong(path: Path, page: _Found, pages: dict[Path, _Found], site: Path) -> Iterator[str]:
    for target in page.loads:
        if urlsplit(target).netloc:
            yield f"loads {target} from another place"
        elif not target.startswith("data:") and not _place(path, target, site).exists():
            yield f"loads {target}, which does not exist"
    for target in page.links:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        goal = _place(path, target, site)
        if not goal.exists():
            yield f"leads to {target}, which does not exist"
        elif parts.fragment and goal in pages:
            anchor = unquote(parts.fragment)
            if anchor not in pages[goal].places and anchor != "__skip":
                yield f"leads to {target}, but that page has no such place"


def _place(path: Path, target: str, site: Path) -> Path:
    """The file that a target means, seen from a page."""
    name = unquote(urlsplit(target).path)
    start = site if name.startswith("/") else path.parent
    goal = (start / name.lstrip("/")).resolve() if name else path
    return goal / "index.html" if goal.is_dir() else goal


def main(site: Path) -> int:
    """Print what is wrong; return the exit code."""
    wrong = problems(site)
    for line in wrong:
        print(line)
    count = len(list(site.rglob("*.html")))
    print(
        f"{count} pages checked: {len(wrong)} problems." if wrong else f"{count} pages, all well."
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
