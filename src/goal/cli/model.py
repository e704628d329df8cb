"""What the commands about a model share, and those about the model as a whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from goal.cli.common import console, reporter

if TYPE_CHECKING:
    from goal.models.folder import ModelFolder
    from goal.models.model import Model

ModelPath = Annotated[Path, Parameter(name="--model", help="The model folder.")]
Backbone = Annotated[
    str | None,
    Parameter(help="Where the backbone is now, if it was moved; it must be the same one."),
]
Download = Annotated[
    bool, Parameter(negative=(), help="Fetch the backbone if it is not on this machine.")
]
Force = Annotated[bool, Parameter(negative=(), help="Overwrite the file if it exists.")]


def open_model(
    folder: Path,
    device: str | None = None,
    backbone: str | None = None,
    download: bool = False,
    workers: int = 0,
    fitted: bool = True,
) -> "Model":
    """A model that learns and predicts; torch is loaded only if there is one."""
    standing = open_folder(folder)
    if fitted:
        standing.store.require()
    from goal.models.model import Model

    opened = Model(
        folder, reporter(), device, backbone=backbone, download=download, workers=workers
    )
    opened.store = standing.store  # has read the steps already
    return opened


def refresh(opened: "ModelFolder") -> None:
    """Draw a page anew that a killed command left behind."""
    if (trouble := opened.refresh()) is not None:
        say(trouble)


def writable(path: Path, force: bool) -> Path:
    """Check a file to be written: not inside a model, and overwritten only if that is wanted."""
    from goal.models.places import writable as checked

    return checked(path, force)


def open_folder(folder: Path) -> "ModelFolder":
    """A model whose classes are looked at and corrected; needs no backbone."""
    from goal.models.folder import ModelFolder

    return ModelFolder(folder)


def say(text: str) -> None:
    """Print a line that may hold names."""
    console.say(text)


def extend_vertices(
    *,
    model: ModelPath,
    to: Annotated[int, Parameter(help="Vertices in all.")],
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Make room for more classes; owned vertices move as little as possible.

    Args:
        model: The model folder.
        to: Vertices in all.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    record = open_model(model, None, backbone, download).extend_vertices(to)
    console.print(f"Vertices: {record.free} of {record.capacity} are free.")


def export(
    *,
    model: ModelPath,
    onnx: Annotated[Path, Parameter(help="File to write.")],
    force: Force = False,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Write the model as one ONNX graph: whole images in, class scores and probabilities out.

    Args:
        model: The model folder.
        onnx: File to write; its metadata has the names of the classes and explains the outputs.
        force: Overwrite that file if it exists.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    opened = open_model(model, None, backbone, download)
    refresh(opened)
    opened.export(writable(onnx, force))
    say(f"Model: {onnx.resolve()}")
