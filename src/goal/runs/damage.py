"""Damage to run folders, told apart from defects of goal."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from goal.common.errors import GoalError
from goal.storage.manifest import Findings, verify_all


@contextmanager
def blaming_damage(folders: Iterable[Path]) -> Iterator[None]:
    """Turn whatever goes wrong with damaged folders into an error that names the damage.

    With folders that are as they were written, an exception is a defect and passes unchanged.
    """
    try:
        yield
    except GoalError:
        raise
    except Exception as error:
        for folder in folders:
            found = Findings()
            verify_all(folder, found)
            if found.problems:
                why = f"{type(error).__name__}: {error}"
                raise GoalError(f"{folder} is damaged ({why}). {found.problems[0]}") from error
        raise
