"""Names of files and classes come from strangers: how they are shown and written without harm."""

import os
import unicodedata

_JOINERS = "\u200c\u200d"  # part of ordinary words in some scripts
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def visible(text: str, keep: str = "") -> str:
    r"""Spell out characters that would steer a terminal or hide: ``\x1b`` for an escape.

    Control and format characters, odd line breaks, and bytes that are no text; `keep` are
    characters to leave, such as line feeds.
    """
    return "".join(
        char if char in keep or char in _JOINERS or not _is_odd(char) else _spelt(char)
        for char in text
    )


def file_name(path: os.PathLike[str] | str) -> str:
    """Spell a path for people and tables."""
    return visible(os.fspath(path))


def csv_cell(text: str) -> str:
    """Keep spreadsheets from taking a name for a formula: such a name gets a quote in front."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _is_odd(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _spelt(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
