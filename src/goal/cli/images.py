"""Commands for people with their own images, or features of them."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from goal.cli.common import Set, console, reporter
from goal.cli.model import (
    Backbone,
    Download,
    Force,
    ModelPath,
    open_folder,
    open_model,
    refresh,
    say,
    writable,
)
from goal.common.errors import GoalError
from goal.common.wording import counted

if TYPE_CHECKING:
    from goal.models.model import Model
    from goal.models.predictions import Predictions
    from goal.models.store import StageRecord

_SHOWN = 20
Engine = Annotated[
    Literal["local", "ray"], Parameter(help="Where features are computed: here, or on Ray.")
]
Workers = Annotated[int, Parameter(help="Actors of Ray.")]
Unknown = Annotated[str | None, Parameter(help="0.01 if the model can tell, else off.")]


def embed(
    *images: str,
    out: Path,
    backbone: str | None = None,
    image_size: int | None = None,
    device: str = "cpu",
    download: Download = False,
    engine: Engine = "local",
    workers: Workers = 2,
) -> None:
    """Compute the features of images, once, and keep them in a feature store.

    `goal fit`, `discover` and `predict` take the store in the place of images. Interrupted, the
    same command goes on where it stopped; images that the store has are not computed again.

    Args:
        images: Folders, files, lists (.csv, .txt, .parquet), tar shards, datasets, or addresses.
        out: The feature store, new or grown.
        backbone: Hub id, transformers folder, DINO .pth file, or digits-vit.
        image_size: Side of the square input, if not the one that the backbone was made for.
        device: Where to compute: cpu, cuda, cuda:1, ...
        download: Fetch what is not on this machine: the backbone, images at an address.
        engine: Where features are computed.
        workers: Actors of Ray.
    """
    from goal.backbone.features import load_embedder
    from goal.backbone.names import DEFAULT_EMBEDDER
    from goal.data.collections import open_images
    from goal.distributed import usable
    from goal.features.bank import FeatureBank
    from goal.features.embed import origin_of
    from goal.models.places import outside_models
    from goal.storage.locks import locked

    outside_models(out)
    given = open_images(images, reporter(), download)
    place = usable(device)
    embedder = load_embedder(backbone or DEFAULT_EMBEDDER, download, image_size).to(place)
    console.print(f"Feature: {embedder.reads}, {embedder.width} numbers.")
    with locked(out):
        bank = FeatureBank(
            origin_of(embedder), out, lambda: embedder, reporter(), _workers(engine, workers)
        )
        lost = bank.fill(given)
    say(f"Features of {counted(len(given) - len(lost), 'image')}: {out.resolve()}")
    _say_skipped(given.without(lost).skipped)


def fit(
    labelled: str,
    /,
    *,
    model: ModelPath,
    labels: Path | None = None,
    method: str | None = None,
    backbone: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    download: Download = False,
    engine: Engine = "local",
    workers: Workers = 2,
    overrides: Set = (),
) -> None:
    """Learn labelled images, one folder per class: the first stage of a model.

    Interrupted, the same command goes on where it stopped.

    Args:
        labelled: Folder that holds one folder of images per class; or features with labels: a
            feature store of such a folder, a .npz or .parquet file, or a .npy file and --labels.
        model: The model folder, new or interrupted.
        labels: Labels of features: a .npy file, or a text file with one per line.
        method: Method, see `goal list methods`.
        backbone: Hub id, transformers folder, DINO .pth file, or digits-vit.
        seed: Seed; the same one gives the same model.
        device: Where to compute: cpu, cuda, cuda:1, ...
        download: Fetch what is not on this machine: the backbone, images at an address.
        engine: Where features are computed.
        workers: Actors of Ray.
        overrides: Any other setting.
    """
    from goal.features.labelled import open_labelled

    given, standing = None, open_folder(model)
    if standing.store.records():  # what does not fit is refused before torch is loaded
        standing.require_unchanged()
        given = open_labelled(Path(labelled), labels, reporter())
        standing.require_fits(given.images, given.classes)
    from goal.models.settings import model_settings

    settings = model_settings(method, backbone, seed, device, assignments=overrides)
    given = given or open_labelled(Path(labelled), labels, reporter())
    workers = _workers(engine, workers)
    opened = open_model(model, download=download, workers=workers, fitted=False)
    record = opened.fit(given.images, given.numbers, given.classes, settings)
    console.print(
        f"Learned {counted(len(record.names), 'class')} from {counted(record.images, 'image')}."
    )
    _say_where(opened, record)


def discover(
    *images: str,
    model: ModelPath,
    new: int | Literal["auto"] = "auto",
    unknown: Unknown = None,
    device: str | None = None,
    backbone: Backbone = None,
    download: Download = False,
    engine: Engine = "local",
    workers: Workers = 2,
) -> None:
    """Learn unlabelled images as a new stage: find new classes, forget no known one.

    Writes class and confidence of every image, and whether it is new. Images that were learned
    before keep their class. Interrupted, the same command goes on where it stopped.

    Args:
        images: Folders, files, lists (.csv, .txt, .parquet), tar shards, datasets, or addresses; or
            features: a feature store, or a .npy, .npz or .parquet file.
        model: The model folder.
        new: Number of new classes, or auto to estimate it.
        unknown: Share of known images that may come out as of no class, or off. Images of no class
            wait for the next stage.
        device: Where to compute, if not where the model was fitted.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch what is not on this machine: the backbone, images at an address.
        engine: Where features are computed.
        workers: Actors of Ray.
    """
    from goal.features.labelled import open_given

    opened = open_model(model, device, backbone, download, _workers(engine, workers))
    given = open_given(images, reporter(), download)
    record = opened.discover(given, new, opened.refusal(unknown))
    if record is None:
        return
    known = [opened.roster.known(id) for id in range(record.num_known, record.num_seen)]
    table = Table("New class", "Images", box=None)
    for entry in known:
        table.add_row(entry.name, f"{record.sizes.get(str(entry.id), 0):,}")
    found = f"{counted(record.images, 'image')}, {counted(len(known), 'new class')}"
    console.print(f"Stage {record.index}: {found}.")
    if known:
        console.print(table)
    if record.unsure:
        waits = "waits" if record.unsure == 1 else "wait"
        console.print(f"{counted(record.unsure, 'image')} of no class {waits} for the next stage.")
    _say_where(opened, record)


def predict(
    *images: str,
    model: ModelPath,
    out: Path | None = None,
    force: Force = False,
    unknown: Unknown = None,
    device: str | None = None,
    backbone: Backbone = None,
    download: Download = False,
    engine: Engine = "local",
    workers: Workers = 2,
) -> None:
    """Tell the class of images, each by itself; one far from all classes is unknown.

    Args:
        images: Folders, files, lists (.csv, .txt, .parquet), tar shards, datasets, or addresses; or
            features: a feature store, or a .npy, .npz or .parquet file.
        model: The model folder.
        out: Where to write the table: a .csv or .parquet file.
        force: Overwrite that file if it exists.
        unknown: Share of known images that may come out as of no class, or off.
        device: Where to compute, if not where the model was fitted.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch what is not on this machine: the backbone, images at an address.
        engine: Where features are computed.
        workers: Actors of Ray.
    """
    from goal.features.labelled import open_given

    opened = open_model(model, device, backbone, download, _workers(engine, workers))
    refresh(opened)
    target = None if out is None else writable(out, force)
    given = open_given(images, reporter(), download)
    found = opened.predict(given, opened.refusal(unknown))
    if target is not None:
        found.write(target)
        say(f"Predictions: {target.resolve()}")
    _print_predictions(found)
    _say_skipped(found.skipped)
    if blank := given.blank():
        console.print(f"{len(blank)} images show one colour all over; their class means nothing:")
        for name in blank[:_SHOWN]:
            say(f"  {name}")


def _workers(engine: str, workers: int) -> int:
    """Actors of Ray, none for one process."""
    if workers < 1:
        raise GoalError(f"--workers is a whole number from 1; given: {workers}.")
    return workers if engine == "ray" else 0


def _say_skipped(skipped: list[tuple[str, str]]) -> None:
    if not skipped:
        return
    console.print(f"Skipped {counted(len(skipped), 'file')} that cannot be read as images:")
    for name, reason in skipped[:_SHOWN]:
        say(f"  {name}: {reason}")


def _say_where(model: "Model", record: "StageRecord") -> None:
    folder = model.store.path(record.step).resolve()
    lines = [f"Predictions: {folder / 'predictions.csv'} (and .parquet)"]
    if record.skipped:
        lines.append(f"Skipped {counted(record.skipped, 'file')}: {folder / 'skipped.csv'}")
    lines.append(f"Report: {model.store.folder.resolve() / 'report.html'}")
    for line in lines:
        say(line)


def _print_predictions(found: "Predictions") -> None:
    """Print each image of a few, or how many there are of each class."""
    columns = found.columns()
    if len(found.names) <= _SHOWN:
        rows = zip(columns["file"], columns["class"], columns["confidence"], strict=True)
        for name, label, confidence in rows:
            say(f"{name}: {label} ({confidence:.3f})")
        return
    table = Table("Class", "Images", box=None)
    for label, count in Counter(str(label) for label in columns["class"]).most_common():
        table.add_row(label, f"{count:,}")
    console.print(table)
