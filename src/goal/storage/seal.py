"""The seal: a file that carries the checksum of its own content, so that any changed byte shows.

JSON files hold it as their last key, pages as their last line.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goal.common.errors import GoalError
from goal.storage import files

_KEY = "sha256"


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its checksum in it."""
    files.write_text(path, _text(content))


def read_sealed(path: Path, known_format: int, advice: str) -> dict[str, Any]:
    """Read what `write_sealed` wrote.

    Args:
        path: The file.
        known_format: The format that this version reads.
        advice: What to do if the file is damaged.

    Raises:
        GoalError: Any byte has changed, or the format is another one.
    """
    text = files.read_text(path)
    content = files.read_json(path)
    content.pop(_KEY, None)
    files.require_format(content.get("format"), known_format, path)
    if text not in (_text(content), _first_text(content)):
        raise GoalError(f"{path} is damaged: its checksum is wrong. {advice}")
    return content


def checksum(content: Mapping[str, Any]) -> str:
    """The checksum that sealed content carries."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _text(content: Mapping[str, Any]) -> str:
    """The one way to write this content."""
    return json.dumps({**content, _KEY: checksum(content)}, indent=1) + "\n"


def _first_text(content: Mapping[str, Any]) -> str:
    """As the corrections of models were sealed before version 0.2: with sorted keys."""
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({**content, _KEY: own}, indent=1) + "\n"


def seal_page(page: str) -> str:
    """Give an HTML page a last line with the checksum of all lines before it."""
    return f"{page}<!-- sha256 {hashlib.sha256(page.encode()).hexdigest()} -->\n"


def page_holds(page: bytes) -> bool:
    """Whether a page is as `seal_page` made it."""
    lines = page.splitlines(keepends=True)
    before = b"".join(lines[:-1])
    try:
        return seal_page(before.decode()).encode() == page
    except UnicodeDecodeError:
        return False
