"""The command line: ``goal COMMAND``. Each command only translates; the work is done elsewhere."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from goal import __version__
from goal.errors import GoalError

if TYPE_CHECKING:
    from goal.config import Settings
    from goal.progress import TerminalReporter

app = App(
    name="goal",
    version=__version__,
    help="Continual generalized category discovery: learn labelled classes once, then find new "
    "ones in unlabelled images, stage after stage. Start with `goal demo`.",
)
bank_app = App(name="bank", help="Look at the token bank, or delete it.")
app.command(bank_app)

console = Console()
errors = Console(stderr=True)

Set = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative=(),
        consume_multiple=True,
        help="Override settings: key.sub=value, as often as you like.",
    ),
]


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: int = 0) -> None:
    """Run GOAL on embedded digits: 4 labelled classes, then 3 stages of 2 new ones.

    Beside it runs the floor, k-means on the frozen backbone. Takes about a minute and ends with a
    table and a report to open in a browser.

    Args:
        out: Folder for the two runs and the report.
        seed: Training seed.
    """
    from goal.report.page import write_report
    from goal.report.tables import comparison_table
    from goal.run import start

    folders = []
    for method in ("goal", "kmeans"):
        console.print(f"[bold]{method}[/bold]: digits, seed {seed}")
        settings = _settings(None, "digits", method, {"seed": seed})
        folder = out / f"{method}-seed{seed}"
        start(settings, folder, _reporter())
        folders.append(folder)
    console.print(comparison_table(folders))
    console.print(f"Report: {write_report(folders, out / 'report.html').resolve()}", soft_wrap=True)


@app.command
def run(
    recipe: str | None = None,
    /,
    *,
    out: Path,
    dataset: str | None = None,
    method: str | None = None,
    backbone: str | None = None,
    data_root: Path | None = None,
    seed: int | None = None,
    device: str | None = None,
    download: bool = False,
    overrides: Set = (),
) -> None:
    """Run an experiment: from a recipe, or from a dataset and a method.

    Without a recipe, the shipped one for that dataset and method is used, if there is one. The
    same command run again on a finished or interrupted folder goes on where it stopped.

    Args:
        recipe: A YAML file, or the name of a shipped recipe such as digits/goal.
        out: Run folder: settings, results, checkpoint.
        dataset: Dataset, see `goal list datasets`. Default: digits.
        method: Method, see `goal list methods`. Default: goal.
        backbone: Hub id, transformers folder, DINO .pth file, or embedded backbone.
        data_root: Folder that holds the datasets.
        seed: Training seed.
        device: Where to compute: cpu, cuda, cuda:1, ...
        download: Fetch the dataset if it is missing and public.
        overrides: Any other setting.
    """
    from goal.report.page import write_report
    from goal.run import start

    flags: dict[str, Any] = {}
    if seed is not None:
        flags["seed"] = seed
    if device is not None:
        flags["device"] = device
    if backbone is not None:
        flags["backbone"] = {"name": backbone}
    data: dict[str, Any] = {"download": True} if download else {}
    if data_root is not None:
        data["root"] = str(data_root)
    settings = _settings(recipe, dataset, method, flags | {"data": data}, overrides)
    start(settings, out, _reporter())
    console.print(f"Report: {write_report([out], out / 'report.html').resolve()}", soft_wrap=True)


@app.command
def resume(folder: Path, /) -> None:
    """Go on with an interrupted run; the result is as if it had never stopped.

    Args:
        folder: The run folder.
    """
    from goal.report.page import write_report
    from goal.run import resume as resume_run

    resume_run(folder, _reporter())
    report = write_report([folder], folder / "report.html")
    console.print(f"Report: {report.resolve()}", soft_wrap=True)


@app.command(name="list")
def list_(kind: Literal["methods", "datasets", "backbones", "recipes"], /) -> None:
    """Show what there is to choose from.

    Args:
        kind: What to list.
    """
    from goal.backbone import BACKBONES
    from goal.config import shipped_recipes
    from goal.data import DATASETS
    from goal.methods import METHODS

    entries = {
        "methods": lambda: {name: spec.summary for name, spec in METHODS.items()},
        "datasets": lambda: {name: spec.summary for name, spec in DATASETS.items()},
        "backbones": lambda: BACKBONES,
        "recipes": lambda: {name: _headline(path) for name, path in shipped_recipes().items()},
    }[kind]()
    table = Table(box=None, show_header=False)
    for name, summary in entries.items():
        table.add_row(f"[bold]{name}[/bold]", summary)
    console.print(table)


@app.command
def pretrain(
    *,
    out: Path,
    dataset: str = "digits",
    data_root: Path | None = None,
    overrides: Set = (),
) -> None:
    """Pretrain a small ViT on a dataset's base classes, self-supervised, from nothing.

    For images nothing like ImageNet. The folder it writes is a backbone for `goal run
    --backbone`. Interrupted, the same command goes on.

    Args:
        out: Folder for the backbone.
        dataset: Dataset, see `goal list datasets`.
        data_root: Folder that holds the datasets.
        overrides: Settings of the pretraining (pretrain.KEY=value), or of data, protocol and
            transform.
    """
    import numpy as np

    from goal.config import parse_assignments
    from goal.data import load_dataset
    from goal.pretrain import PretrainSettings
    from goal.pretrain import pretrain as run_pretraining
    from goal.protocol import class_order, targets

    tree = parse_assignments(overrides)
    own = PretrainSettings.parse(tree.pop("pretrain", {}), "settings under 'pretrain'")
    flags = {"data": {"root": str(data_root)}} if data_root is not None else {}
    settings = _settings(None, dataset, None, flags | tree)
    data = load_dataset(settings.data, _reporter())
    order = class_order(len(data.class_names), settings.protocol)
    base = targets(data.train.labels, order) < settings.protocol.base_classes
    ids = np.flatnonzero(base)
    run_pretraining(data.train, ids, settings.transform, own, out, _reporter())
    console.print(f"Backbone: {out.resolve()}", soft_wrap=True)


@bank_app.command
def info(*, folder: Path | None = None) -> None:
    """List what the token bank holds.

    Args:
        folder: The cache folder, if not $GOAL_CACHE or ~/.cache/goal.
    """
    from goal.bank import BankSettings, bank_root
    from goal.files import human_size
    from goal.shelf import inspect

    root = bank_root(BankSettings(folder=str(folder) if folder else None))
    shelves = inspect(root)
    table = Table("Trunk", "Shelf", "View", "Transform", "Rows", "Size", title=f"{root}")
    for shelf in shelves:
        about = shelf.about
        table.add_row(
            shelf.folder.parent.name,
            shelf.folder.name,
            str(about.get("view", "damaged")),
            str(about.get("transform", "")),
            f"{shelf.rows:,}",
            human_size(shelf.size),
        )
    console.print(table)
    console.print(f"Total: {human_size(sum(shelf.size for shelf in shelves))}")


@bank_app.command
def clear(*, trunk: str | None = None, folder: Path | None = None) -> None:
    """Delete banked tokens; they are computed again when needed.

    Args:
        trunk: Only those of the trunk whose name (see `goal bank info`) starts so.
        folder: The cache folder, if not $GOAL_CACHE or ~/.cache/goal.
    """
    from goal.bank import BankSettings, bank_root
    from goal.files import human_size
    from goal.shelf import clear as clear_shelves

    root = bank_root(BankSettings(folder=str(folder) if folder else None))
    console.print(f"Freed {human_size(clear_shelves(root, trunk))} in {root}.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake ends in its message and exit code 1, not a trace."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        app([word for word in given if word != "--debug"], console=console, error_console=errors)
    except GoalError as error:
        if debug:
            raise
        errors.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("Stopped. Nothing finished is lost; `goal resume` goes on.")
        sys.exit(130)


def _reporter() -> "TerminalReporter":
    from goal.progress import TerminalReporter

    return TerminalReporter(console)


def _settings(
    recipe: str | None,
    dataset: str | None,
    method: str | None,
    flags: dict[str, Any],
    overrides: tuple[str, ...] = (),
) -> "Settings":
    """Compose settings: recipe (given, or shipped for the pair), then flags, then --set."""
    from goal.config import (
        DEFAULT_DATASET,
        DEFAULT_METHOD,
        compose,
        find_recipe,
        parse_assignments,
        read_settings,
        shipped_recipes,
    )

    chosen: dict[str, Any] = {}
    if dataset is not None:
        chosen["data"] = {"name": dataset}
    if method is not None:
        chosen["method"] = {"name": method}
    if recipe is not None:
        layer = read_settings(find_recipe(recipe))
    else:
        pair = f"{dataset or DEFAULT_DATASET}/{method or DEFAULT_METHOD}"
        shipped = shipped_recipes().get(pair)
        layer = read_settings(shipped) if shipped else {}
    return compose(layer, chosen, flags, parse_assignments(overrides))


def _headline(recipe: Path) -> str:
    """First comment line of a recipe."""
    first = recipe.read_text().partition("\n")[0]
    return first.lstrip("# ")
