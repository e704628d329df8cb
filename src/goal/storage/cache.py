"""The folder for everything that can be computed again."""

import os
from pathlib import Path


def cache_folder(chosen: str | None = None) -> Path:
    """Return the cache: the chosen folder, ``$GOAL_CACHE``, or ``~/.cache/goal``."""
    return Path(chosen or os.environ.get("GOAL_CACHE") or "~/.cache/goal").expanduser()
