"""Checking model folders: the order of their steps, their logs and their pages."""

from pathlib import Path

from goal.common.errors import GoalError
from goal.models.log import JUDGEMENT, LOG, read_log
from goal.models.records import PAGE
from goal.models.store import Store
from goal.storage import files, folders, manifest
from goal.storage.manifest import Findings
from goal.storage.seal import page_holds


def verify_all(folder: Path, found: Findings) -> None:
    """Check the order of the steps, and what lies beside them, of every model below `folder`."""
    listed = folders.walk(folder, [])
    for path in (path for path in listed if path.name in (LOG, JUDGEMENT)):
        found.checked.append(path)
        found.problems += [one for one in _log_problems(path) if one not in found.problems]
    judged = {path.parent for path in listed if path.name in (LOG, JUDGEMENT)}
    models = judged | {path.parent for path in folder.rglob("stages")}
    for path in (path for path in listed if path.name == PAGE and path.parent in models):
        if path in found.checked or not any(path.parent.glob("stages/*/stage.json")):
            continue
        found.checked.append(path)
        found.problems += _page_problems(path)
    for model in sorted(models):
        found.problems += [
            problem for problem in _order_problems(Store(model)) if problem not in found.problems
        ]


def _log_problems(path: Path) -> list[str]:
    try:
        read_log(path.parent)
    except GoalError as error:
        return [str(error)]
    return []


def _page_problems(path: Path) -> list[str]:
    try:
        whole = page_holds(files.read_bytes(path))
    except GoalError as error:
        return [str(error)]
    return (
        [] if whole else [f"{path} has changed since it was written. `goal show` writes it anew."]
    )


def _order_problems(store: Store) -> list[str]:
    """What is wrong with the order of a model's steps, or with the list of its actions."""
    if store.stages.is_symlink():
        return [f"{store.stages} is a link: a model's files lie in its folder."]
    try:
        records = store.records()
        seals = [store.seal(record.step) for record in records]
    except (GoalError, OSError) as error:
        return [str(error)]
    try:
        history = store.history()
        for record in records:
            manifest.read(store.path(record.step))
    except GoalError:  # a damaged list or manifest: its own check has named it
        return []
    problems = [
        f"{store.path(record.step)} does not follow {store.path(record.step - 1)}: one of them "
        "has been exchanged. Restore the model from a copy."
        for record in records[1:]
        if record.before is not None and record.before != seals[record.step - 1]
    ]
    path, former = store.folder / LOG, store.folder / JUDGEMENT
    new = any(record.before is not None for record in records)
    if new and not path.exists() and not former.exists():
        problems.append(f"{path} is missing: it holds every decision. Restore it from a copy.")
    set_aside = store.folder / ".undone"
    for action in history.holding:
        aside = (set_aside / str(action.seal)).exists()  # an undo cut short: the next one ends it
        if action.step is not None and action.seal not in seals and not aside:
            problems.append(
                f"{store.path(action.step)} is missing or has been exchanged. Restore the model "
                "from a copy."
            )
    return problems
