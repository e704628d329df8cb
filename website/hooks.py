"""What mkdocs asks while it builds: pages from code and tables, and links that fit the site."""

import posixpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import methods, notebooks, reference
from website.pages import ROOT, linked_files, listing, outside_pages, translated

_METHODS, _ROOMS, _BENCHMARKS = "every method", "every room", "every table"


def made_pages() -> dict[str, str]:
    """Pages that are made: their names on the site, and their Markdown."""
    found = {
        "methods/index.md": methods.overview(),
        "reference/commands.md": reference.commands(),
        "reference/python.md": reference.estimators(),
    }
    own = methods.own_methods().items()
    found |= {f"methods/{name}.md": methods.page(name, spec) for name, spec in own}
    found |= {f"reference/{name}.md": reference.room(name) for name in reference.rooms()}
    found |= {name: notebooks.page(path) for name, path in notebooks.notebooks().items()}
    listed = {name: site for name, site in linked_files().items() if site.startswith("source/")}
    return found | {site: listing(name) for name, site in listed.items()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made into the navigation."""
    tables = [site for site in outside_pages().values() if site.startswith("benchmarks/")]
    parts: dict[str, list[Any]] = {
        _METHODS: [f"methods/{name}.md" for name in methods.own_methods()],
        _ROOMS: [{name: f"reference/{name}.md"} for name in reference.rooms()],
        _BENCHMARKS: tables,
    }
    config.nav = _filled(config.nav, parts)
    return config


def _filled(nav: Any, parts: dict[str, list[Any]]) -> Any:
    if isinstance(nav, dict):
        return {title: _filled(entry, parts) for title, entry in nav.items()}
    if isinstance(nav, list):
        filled = [_filled(entry, parts) for entry in nav]
        return [e for entry in filled for e in (entry if isinstance(entry, list) else [entry])]
    return parts.get(nav, nav) if isinstance(nav, str) else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those from outside of ``docs``."""
    for name, content in made_pages().items():
        files.append(File.generated(config, name, content=content))
    copied = outside_pages() | linked_files()
    for name, site in copied.items():
        if files.get_file_from_path(site) is None and not site.startswith("source/"):
            files.append(File.generated(config, site, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where files are on the site."""
    return translated(markdown, posixpath.normpath(page.file.src_uri))
