"""Commands by which a person says what images and classes are, and the model learns from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from goal.cli.common import reporter
from goal.cli.model import Backbone, Download, ModelPath, open_model, say

if TYPE_CHECKING:
    from goal.models.history import Action

_UNDO = "`goal undo` takes it back."


def move(*images: str, to: str, model: ModelPath) -> None:
    """Say that images are of a class; the classes concerned learn from it at once.

    Args:
        images: Images that the model has learned: as its tables list them, by path, or by the first
            digits of their digest.
        to: The class.
        model: The model folder.
    """
    _tell(open_model(model).move(images, to))


def reject(
    *images: str,
    model: ModelPath,
    source: Annotated[str | None, Parameter(name="--from")] = None,
) -> None:
    """Say that images are not of a class: they count as their best other one, or as none.

    Args:
        images: Images that the model has learned, as for `goal move`.
        model: The model folder.
        source: The class, if not the one that each is in.
    """
    _tell(open_model(model).reject(images, source))


def confirm(name: str, /, *images: str, model: ModelPath) -> None:
    """Say that a class is right, or that some images of it are.

    Args:
        name: The class.
        images: Images that are of it, if it is about these alone.
        model: The model folder.
    """
    _tell(open_model(model).confirm(name, images))


def split(name: str, /, *, model: ModelPath, into: int | Literal["auto"] = "auto") -> None:
    """Say that a class is several; the largest of them keeps its id and its name.

    Args:
        name: The class, one that was discovered.
        model: The model folder.
        into: How many, or auto for as many as are best apart.
    """
    opened = open_model(model)
    noted = opened.split(name, into)
    _tell(noted)
    roster = opened.roster
    for id in [*noted.ids, *map(int, noted.made)]:
        say(f"  {roster.names[id]}: {roster.known(id).size:,} images")


def junk(name: str, /, *, model: ModelPath) -> None:
    """Say that a class is none: what is like it comes out as unknown from now on.

    Args:
        name: The class.
        model: The model folder.
    """
    _tell(open_model(model).junk(name))


def teach(
    labelled: str,
    /,
    *,
    model: ModelPath,
    labels: Path | None = None,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Teach a few labelled images, seen before or not; new names make new classes.

    Args:
        labelled: Folder that holds one folder of images per class; a .csv file with the columns
            file and class; or features with labels, as for `goal fit`.
        model: The model folder.
        labels: Labels of features: a .npy file, or a text file with one per line.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    from goal.features.labelled import open_few

    opened = open_model(model, None, backbone, download)
    opened.store.require()
    given = open_few(Path(labelled), labels, reporter())
    noted = opened.teach(given.images, [given.classes[number] for number in given.numbers])
    _tell(noted)
    for name, reason in opened.skipped:
        say(f"  skipped {name}: {reason}")


def _tell(noted: "Action") -> None:
    """Say what was noted, and its number."""
    say(f"Noted as {noted.id}: {noted.said}. {_UNDO}")
