"""Verification: every run, model, token bank and base model compared with its checksums.

Each format verifies itself; this finds them.
"""

from pathlib import Path

from goal.bank import shelf
from goal.common.errors import GoalError
from goal.features import store as features
from goal.models import checking
from goal.runs import records
from goal.storage import checkpoint
from goal.storage.folders import walk
from goal.storage.manifest import Findings, verify_all


def verify(folder: Path) -> Findings:
    """Check every run, model, token bank and base model in or below `folder`."""
    found = Findings()
    if folder.is_dir():
        verify_all(folder, found)
        _verify_cache(walk(folder, []), found)
        checking.verify_all(folder, found)
        records.verify_all(folder, found)
        features.verify_all(folder, found)
    if not found.checked and not found.problems:
        raise GoalError(f"{folder} holds no run, model or token bank that could be verified.")
    return found


def _verify_cache(files: list[Path], found: Findings) -> None:
    """Check the shelves of token banks, and base models."""
    for path in files:
        if path.name == "about.json":
            found.problems += shelf.damage(path.parent)
            found.checked += [other for other in files if other.parent == path.parent]
        elif path.suffix == ".pt" and path.parent.name == "base":
            found.problems += checkpoint.damage(path)
            found.checked.append(path)
