"""Commands for people with their own images: a model folder and its life."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from goal.cli.common import Set, console, reporter
from goal.common.errors import GoalError
from goal.models.places import writable

if TYPE_CHECKING:
    from goal.data.own_images import ImageSet
    from goal.models.folder import ModelFolder
    from goal.models.model import Model
    from goal.models.predictions import Predictions
    from goal.models.store import StageRecord

_SHOWN = 20
ModelPath = Annotated[Path, Parameter(name="--model", help="The model folder.")]
Backbone = Annotated[
    str | None,
    Parameter(help="Where the backbone is now, if it was moved; it must be the same one."),
]
Download = Annotated[
    bool, Parameter(negative=(), help="Fetch the backbone if it is not on this machine.")
]
Force = Annotated[bool, Parameter(negative=(), help="Overwrite the file if it exists.")]


def fit(
    labelled: Path,
    /,
    *,
    model: ModelPath,
    method: str | None = None,
    backbone: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    download: Download = False,
    overrides: Set = (),
) -> None:
    """Learn labelled images, one folder per class: the first stage of a model.

    Interrupted, the same command goes on where it stopped.

    Args:
        labelled: Folder that holds one folder of images per class.
        model: The model folder, new or interrupted.
        method: Method, see `goal list methods`.
        backbone: Hub id, transformers folder, DINO .pth file, or digits-vit.
        seed: Seed; the same one gives the same model.
        device: Where to compute: cpu, cuda, cuda:1, ...
        download: Fetch the backbone if it is not on this machine.
        overrides: Any other setting.
    """
    import numpy as np

    from goal.data.own_images import from_files
    from goal.data.screening import Screened, screen_classes
    from goal.models.settings import model_settings

    settings = model_settings(method, backbone, seed, device, assignments=overrides)
    classes = screen_classes(labelled, reporter())
    paths = [path for found in classes.values() for path in found.paths]
    skipped = [entry for found in classes.values() for entry in found.skipped]
    labels = [number for number, found in enumerate(classes.values()) for _ in found.paths]
    given = from_files(Screened(paths, skipped))
    opened = _open(model, download=download)
    record = opened.fit(given, np.array(labels, np.int64), list(classes), settings)
    found = "1 class" if len(record.names) == 1 else f"{len(record.names)} classes"
    console.print(f"Learned {found} from {record.images:,} images.")
    _say_where(opened, record)


def discover(
    *images: Path,
    model: ModelPath,
    new: int | Literal["auto"] = "auto",
    device: str | None = None,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Learn unlabelled images as a new stage: find new classes, forget no known one.

    Writes class and confidence of every image, and whether it is new. Images that were learned
    before keep their class. Interrupted, the same command goes on where it stopped.

    Args:
        images: Folders or files.
        model: The model folder.
        new: Number of new classes, or auto to estimate it (at most 10, or half as many as known).
        device: Where to compute, if not where the model was fitted.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    opened = _open(model, device, backbone, download)
    opened.store.require()
    record = opened.discover(_screened(images), new)
    if record is None:
        return
    known = [opened.roster.known(id) for id in range(record.num_known, record.num_seen)]
    table = Table("New class", "Images", box=None)
    for entry in known:
        table.add_row(escape(entry.name), f"{record.sizes.get(str(entry.id), 0):,}")
    new_classes = "1 new class" if len(known) == 1 else f"{len(known)} new classes"
    console.print(f"Stage {record.index}: {record.images:,} images, {new_classes}.")
    console.print(table)
    _say_where(opened, record)


def predict(
    *images: Path,
    model: ModelPath,
    out: Path | None = None,
    force: Force = False,
    device: str | None = None,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Tell the class of images, each by itself.

    Args:
        images: Folders or files.
        model: The model folder.
        out: Where to write the table: a .csv or .parquet file.
        force: Overwrite that file if it exists.
        device: Where to compute, if not where the model was fitted.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    opened = _open(model, device, backbone, download)
    opened.store.require()
    _refresh(opened)
    target = out and writable(out, force)
    given = _screened(images)
    found = opened.predict(given)
    if target is not None:
        found.write(target)
        _say(f"Predictions: {target.resolve()}")
    _print_predictions(found)
    if found.skipped:
        console.print(f"Skipped {len(found.skipped)} files that are no readable images:")
        for name, reason in found.skipped[:_SHOWN]:
            _say(f"  {name}: {reason}")
    if blank := given.blank():
        console.print(f"{len(blank)} images show one colour all over; their class means nothing:")
        _say("\n".join(f"  {name}" for name in blank[:_SHOWN]))


def classes(*, model: ModelPath, plain: bool = False) -> None:
    """List the classes: size, vertex, and when they were discovered.

    Args:
        model: The model folder.
        plain: Only the names, one per line.
    """
    opened = _folder(model)
    roster = opened.roster
    _refresh(opened)
    if plain:
        for known in roster.classes():
            _say(known.name)
        return
    table = Table("Id", "Class", "Images", "From", "When (UTC)", "Vertex", "Merged into it")
    for known in roster.classes():
        table.add_row(
            str(known.id),
            escape(known.name),
            f"{known.size:,}",
            "labels" if known.stage == 0 else f"stage {known.stage}",
            known.since[:16].replace("T", " "),
            "" if known.vertex is None else str(known.vertex),
            escape(", ".join(roster.names[id] for id in known.merged)),
        )
    console.print(table)
    for record in opened.records:
        if record.estimate is not None:
            _say(f"Stage {record.index}: {record.estimate.text()}")
    last = opened.records[-1]
    if last.free is not None:
        console.print(f"Vertices: {last.free} of {last.capacity} are free.")


def rename(name: str, to: str, /, *, model: ModelPath) -> None:
    """Call a class by another name; later stages keep to it.

    Args:
        name: The class.
        to: Its new name.
        model: The model folder.
    """
    kept = _folder(model).rename(name, to)
    _say(f"{name} is called {kept} now.")


def merge(keep: str, /, *others: str, model: ModelPath) -> None:
    """Say that classes are one; predictions for any of them come out as the first.

    Args:
        keep: The class that stays.
        others: The classes that count as it from now on.
        model: The model folder.
    """
    if not others:
        raise GoalError("Name at least two classes: the one to keep, then the others.")
    _folder(model).merge(keep, others)
    _say(f"{', '.join(others)} {'counts' if len(others) == 1 else 'count'} as {keep} now.")


def unmerge(name: str, /, *, model: ModelPath) -> None:
    """Let a merged class stand for itself again.

    Args:
        name: The merged class.
        model: The model folder.
    """
    _folder(model).unmerge(name)
    _say(f"{name} is a class of its own again.")


def undo(*, model: ModelPath, stage: bool = False) -> None:
    """Take back the last action (a stage, a renaming, a merge, ...), or drop an unfinished stage.

    Says what it took back; `goal redo` brings it back. Interrupted, the same command ends what
    it began and goes no further.

    Args:
        model: The model folder.
        stage: Take back the last stage, with every correction of its classes made since.
    """
    _say(_folder(model).undo(stage))


def redo(*, model: ModelPath) -> None:
    """Do again what the last undo took back, unless something else was done since.

    Args:
        model: The model folder.
    """
    _say(_folder(model).redo())


def show(
    *,
    model: ModelPath,
    out: Path | None = None,
    force: Force = False,
    browse: Annotated[bool, Parameter(name="--open")] = False,
) -> None:
    """Write the model's report: its classes, and pictures of those it discovered.

    Args:
        model: The model folder.
        out: Where to write it, if not into the model folder.
        force: Overwrite that file if it exists.
        browse: Open it in a browser.
    """
    import webbrowser

    opened = _folder(model)
    opened.store.require()
    page = opened.write_page(out and writable(out, force)).resolve()
    _say(f"Report: {page}")
    if browse:
        webbrowser.open(page.as_uri())


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
    record = _open(model, None, backbone, download).extend_vertices(to)
    console.print(f"The model has {record.capacity} vertices now, {record.free} of them free.")


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
    opened = _open(model, None, backbone, download)
    opened.store.require()
    _refresh(opened)
    opened.export(writable(onnx, force))
    _say(f"Model: {onnx.resolve()}")


def suggest_names(*, model: ModelPath, names: Path, clip: Path) -> None:
    """Suggest names for discovered classes by a CLIP model.

    Args:
        model: The model folder.
        names: Text file of candidate names, one per line.
        clip: Folder of a transformers CLIP model.
    """
    from goal.models.names import suggest_names as ask

    opened = _folder(model)
    table = Table("Class", "Suggestion", "Likeliest")
    for label, found in ask(opened.pictures(), names, clip).items():
        likeliest = ", ".join(f"{name} ({cosine:.2f})" for name, cosine in found.likeliest)
        table.add_row(escape(label), escape(found.name or ""), escape(likeliest))
    console.print(table)
    console.print("`goal rename` gives a class its name.")


def _open(
    folder: Path,
    device: str | None = None,
    backbone: str | None = None,
    download: bool = False,
) -> "Model":
    from goal.models.model import Model

    return Model(folder, reporter(), device, backbone=backbone, download=download)


def _refresh(opened: "ModelFolder") -> None:
    """Draw a page anew that a killed command left behind."""
    if (trouble := opened.refresh()) is not None:
        _say(trouble)


def _folder(folder: Path) -> "ModelFolder":
    from goal.models.folder import ModelFolder

    return ModelFolder(folder)


def _say(text: str) -> None:
    """Print a line that may hold names."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def _screened(places: tuple[Path, ...]) -> "ImageSet":
    """Screen files and everything below folders."""
    from goal.data.own_images import from_files
    from goal.data.screening import Screened, screen_below

    if not places:
        raise GoalError("Give at least one folder or file of images.")
    parts = [screen_below(place, reporter()) for place in places]
    paths = [path for part in parts for path in part.paths]
    return from_files(Screened(paths, [entry for part in parts for entry in part.skipped]))


def _say_where(model: "Model", record: "StageRecord") -> None:
    folder = model.store.path(record.step).resolve()
    lines = [f"Predictions: {folder / 'predictions.csv'} (and .parquet)"]
    if record.skipped:
        lines.append(f"Skipped {record.skipped} files: {folder / 'skipped.csv'}")
    lines.append(f"Report: {model.store.folder.resolve() / 'report.html'}")
    for line in lines:
        _say(line)


def _print_predictions(found: "Predictions") -> None:
    """Print each image of a few, or how many there are of each class."""
    columns = found.columns()
    if len(found.names) <= _SHOWN:
        rows = zip(columns["file"], columns["class"], columns["confidence"], strict=True)
        for name, label, confidence in rows:
            _say(f"{name}: {label} ({confidence:.3f})")
        return
    table = Table("Class", "Images", box=None)
    for label, count in Counter(str(label) for label in columns["class"]).most_common():
        table.add_row(escape(label), f"{count:,}")
    console.print(table)
