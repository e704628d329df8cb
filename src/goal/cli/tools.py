"""Commands beside the experiments: lists, pretraining, the token bank."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from goal.cli.common import Set, console, errors, flags, refuse_ranks, reporter
from goal.common.errors import GoalError

if TYPE_CHECKING:
    from goal.common.plugins import Registry


def list_(kind: Literal["methods", "datasets", "backbones", "recipes"], /) -> None:
    """Show what there is to choose from.

    Args:
        kind: What to list.
    """
    entries = {
        "methods": _methods,
        "datasets": _datasets,
        "backbones": _backbones,
        "recipes": _recipes,
    }[kind]()
    table = Table(box=None, show_header=False)
    for name, summary in entries.items():
        table.add_row(f"[bold]{escape(name)}[/bold]", escape(summary))
    console.print(table)


# What is listed is imported by its own kind alone, and nothing of it needs torch.


def _methods() -> dict[str, str]:
    from goal.methods.registry import METHODS

    return {name: _with_package(spec.summary, METHODS, name) for name, spec in METHODS.items()}


def _datasets() -> dict[str, str]:
    from goal.data.sets import DATASETS

    return {name: _with_package(spec.summary, DATASETS, name) for name, spec in DATASETS.items()}


def _backbones() -> dict[str, str]:
    from goal.backbone.names import BACKBONES

    return BACKBONES


def _recipes() -> dict[str, str]:
    from goal.settings.recipes import recipe_titles

    return recipe_titles()


def _with_package(summary: str, registry: "Registry[Any]", name: str) -> str:
    """Mark an entry that comes from a plug-in."""
    package = registry.package(name)
    return summary if package is None else f"{summary} (plug-in of {package})"


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

    refuse_ranks("pretrain")
    from goal.data.sets import load_dataset
    from goal.learning.pretrain import PretrainSettings
    from goal.learning.pretrain import pretrain as run_pretraining
    from goal.protocol.stages import class_order, targets
    from goal.settings.plain import merge, parse_assignments
    from goal.settings.recipes import assemble

    tree = parse_assignments(overrides)
    own = PretrainSettings.parse(tree.pop("pretrain", {}), "settings under 'pretrain'")
    settings = assemble(None, dataset, None, merge(flags(data_root=data_root), tree))
    data = load_dataset(settings.data, reporter())
    order = class_order(len(data.class_names), settings.protocol)
    base = targets(data.train.labels, order) < settings.protocol.base_classes
    ids = np.flatnonzero(base)
    run_pretraining(data.train, ids, settings.transform, own, out, reporter())
    console.print(f"Backbone: {out.resolve()}", soft_wrap=True)


def verify(folder: Path, /) -> None:
    """Check that the files of runs, models and token banks are as they were written.

    Args:
        folder: A run, a model, a token bank, or a folder that holds some.
    """
    from goal.verify import verify as verify_folder

    verdict = verify_folder(folder)
    for path in verdict.unlisted:
        console.print(f"{path}: not in the manifest, not checked", markup=False, soft_wrap=True)
    for problem in verdict.problems:
        errors.print(problem, style="red", highlight=False, markup=False, soft_wrap=True)
    checked = f"{len(verdict.checked)} files, {decimal(verdict.size)}"
    if verdict.problems:
        raise GoalError(f"{len(verdict.problems)} of {checked} are not as they were written.")
    console.print(f"{checked}: all as they were written.")


def info(*, folder: Path | None = None) -> None:
    """List what the token bank holds.

    Args:
        folder: The cache folder, if not $GOAL_CACHE or ~/.cache/goal.
    """
    from goal.bank.bank import BankSettings, bank_root
    from goal.bank.shelf import inspect

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
            decimal(shelf.size),
        )
    console.print(table)
    console.print(f"Total: {decimal(sum(shelf.size for shelf in shelves))}")


def clear(*, trunk: str | None = None, folder: Path | None = None) -> None:
    """Delete banked tokens; they are computed again when needed.

    Args:
        trunk: Only those of the trunk whose name (see `goal bank info`) starts so.
        folder: The cache folder, if not $GOAL_CACHE or ~/.cache/goal.
    """
    from goal.bank.bank import BankSettings, bank_root
    from goal.bank.shelf import clear as clear_shelves

    root = bank_root(BankSettings(folder=str(folder) if folder else None))
    console.print(f"Freed {decimal(clear_shelves(root, trunk))} in {root}.")


def doctor() -> None:
    """Say what this machine can do: device, memory, disk, versions, what is at hand."""
    from goal.cli.doctor import examine

    table = Table(box=None, show_header=False)
    for topic, finding in examine():
        table.add_row(f"[bold]{escape(topic)}[/bold]", escape(finding))
    console.print(table)
