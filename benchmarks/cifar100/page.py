"""The benchmark's page."""

from pathlib import Path


def write_page(out: Path, page: Path) -> Path:
    """Write the page."""
    return page
