"""HTML that opens from disk: one document with its styles, scripts and data inside."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any


def document(title: str, body: str, styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """Build a self-contained page.

    Args:
        title: Plain text.
        body: HTML; escape what comes from people with `html.escape`.
        styles: Names of style sheets beside this file, after ``page.css``.
        scripts: Names of scripts beside this file, run in order at the end of the body.
    """
    style = "\n".join(asset(name) for name in ("page.css", *styles))
    script = "".join(f"<script>{asset(name)}</script>" for name in scripts)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f"<body>{body}{script}</body></html>\n"
    )


def json_script(name: str, content: Any) -> str:
    """Put data into the page where no text in it can end the element or start another."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f"<script type='application/json' id='{escape(name)}'>{safe}</script>"


def asset(name: str) -> str:
    """Read a style sheet or script of this package."""
    return (files("goal.pages") / "assets" / name).read_text(encoding="utf-8")
