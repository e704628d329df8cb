"""Verification: every run, model, token bank and base model compared with its checksums.

Each format verifies itself; this finds them.
"""

from pathlib import Path

from goal.bank import shelf
from goal.common.errors import GoalError
from goal.models import store
from goal.runs import records
from goal.storage import checkpoint
from goal.storage.manifest import Findings, verify_all


def verify(folder: Path) -> Findings:
    """Check every run, model, token bank and base model in or below `folder`."""
    found = Findings()
    verify_all(folder, found)
    for about in sorted(folder.rglob("about.json")):
        found.problems += shelf.damage(about.parent)
        found.checked += [path for path in sorted(about.parent.iterdir()) if path.is_file()]
    for path in sorted(path for path in folder.rglob("*.pt") if path.parent.name == "base"):
        found.problems += checkpoint.damage(path)
        found.checked.append(path)
    store.verify_all(folder, found)
    records.verify_all(folder, found)
    if not found.checked and not found.problems:
        raise GoalError(f"{folder} holds no run, model or token bank that could be verified.")
    return found
