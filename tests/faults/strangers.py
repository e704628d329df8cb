"""What a stranger may put into a folder: links, pipes, devices and bombs in the place of our files.

Each attack is made on a copy of a finished run, model or bank; a command is then given as a person
would. It must end with exit code 0 or 1 and an explanation, in time, and leave the victim's file
as it was.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.nursery import Outcome, goal
from tests.faults.worlds import Work

Attack = Callable[[Path, Path], object]
VICTIM = "precious"


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)


def link(path: Path, victim: Path) -> None:
    """A link to the victim in the place of a file."""
    _replace(path, lambda place: place.symlink_to(victim))


def folder_link(path: Path, victim: Path) -> None:
    """A link to the victim's folder in the place of a file's folder."""
    _replace(path.parent, lambda place: place.symlink_to(victim.parent))


def old_neighbour(path: Path, victim: Path) -> None:
    """A link where a careless writer would gather its content."""
    for name in (f".{path.name}.tmp", f".{path.name}.goal-{'0' * 16}.tmp"):
        _replace(path.with_name(name), lambda place: place.symlink_to(victim))


def second_name(path: Path, victim: Path) -> None:
    """The victim under a second name."""
    _replace(path, lambda place: os.link(victim, place))


def pipe(path: Path, victim: Path) -> None:
    """A pipe that nobody writes to."""
    _replace(path, os.mkfifo)


def endless(path: Path, victim: Path) -> None:
    """A device that never ends."""
    _replace(path, lambda place: place.symlink_to("/dev/zero"))


def vast(path: Path, victim: Path) -> None:
    """A file of a terabyte that takes no room."""
    _replace(path, lambda place: place.touch())
    os.truncate(path, 1 << 40)


ATTACKS: tuple[Attack, ...] = (link, folder_link, old_neighbour, second_name, pipe, endless, vast)


def attack(rng: random.Random, work: Work, root: Path) -> tuple[str, Outcome, str]:
    """Attack one file of a world; return what was done, how the command ended, and the victim."""
    home = root.with_name(f"{root.name}-home")
    home.mkdir()
    victim = home / "thesis.txt"
    victim.write_text(VICTIM)
    ours = sorted(path for path in root.rglob("*") if path.is_file() and path.parent != root)
    chosen, how = rng.choice(ours), rng.choice(ATTACKS)
    what = f"{how.__name__} at {chosen.relative_to(root)}"
    how(chosen, victim)
    outcome = goal(root, *work.arguments(root))
    left = victim.read_text() if victim.exists() else "deleted"
    made = sorted(path.name for path in home.iterdir())
    shutil.rmtree(home)
    return what, outcome, left if made == [victim.name] else f"{left}, beside {made}"
