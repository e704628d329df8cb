"""Text from strangers, and what a page may hold of it."""

import re
from html.parser import HTMLParser
from typing import Any

TAG = "<img src=x onerror=alert(1)>"
CONTROLS = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
STRANGE = f"'\"&amp;{TAG}</script></style></title><!--{CONTROLS}"


class Elements(HTMLParser):
    """Elements of a page with their attributes, and the text of its cells and headings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[str]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(page: str, ordinary: str) -> None:
    """The page has the elements of the ordinary one, no raw tag and no control character."""
    assert TAG not in page and "<img" not in page and "onerror" in page
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", page) is None
    assert Elements(page).tags == Elements(ordinary).tags


def struck(value: Any, text: str) -> Any:
    """Put a text in the place of every text in a piece of JSON, keys excepted."""
    if isinstance(value, dict):
        return {key: struck(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [struck(inner, text) for inner in value]
    return text if isinstance(value, str) else value
