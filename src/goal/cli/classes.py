"""Commands about the classes of a model: look at them, correct them, take it back."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from goal.cli.common import console
from goal.cli.model import Force, ModelPath, open_folder, open_model, refresh, say, writable
from goal.common.errors import GoalError

if TYPE_CHECKING:
    from goal.models.folder import ModelFolder
    from goal.models.nearness import Nearness  # numpy: not for help


def classes(*, model: ModelPath, plain: bool = False, tree: bool = False) -> None:
    """List the classes: size, vertex, and when they were discovered.

    Args:
        model: The model folder.
        plain: Only the names, one per line.
        tree: Which classes lie near each other, as a tree, and which may be one.
    """
    opened = open_folder(model)
    roster = opened.roster
    refresh(opened)
    if tree:
        _tree(opened.nearness())
        return
    if plain:
        for known in roster.classes():
            say(known.name)
        return
    table = Table("Id", "Class", "Images", "From", "When (UTC)", "Vertex", "Merged into it")
    for known in roster.classes():
        table.add_row(
            str(known.id),
            known.name,
            f"{known.size:,}",
            "labels" if known.stage == 0 else f"stage {known.stage}",
            known.since[:16].replace("T", " "),
            "" if known.vertex is None else str(known.vertex),
            ", ".join(roster.names[id] for id in known.merged),
        )
    console.print(table)
    for record in opened.records:
        if record.estimate is not None:
            say(f"Stage {record.index}: {record.estimate.text()}")
    last = opened.records[-1]
    if last.free is not None:
        console.print(f"Vertices: {last.free} of {last.capacity} are free.")


def _tree(near: "Nearness | None") -> None:
    """Say which classes lie near each other."""
    if near is None:
        raise GoalError(
            "The last stage of this model was learned by a version that did not keep where its "
            "classes lie; after the next `goal discover` there is a tree."
        )
    for line in near.lines():
        say(line)
    for first, second in near.candidates():
        say(f"{first} and {second} may be one class.")


def rename(name: str, to: str, /, *, model: ModelPath) -> None:
    """Call a class by another name; later stages keep to it.

    Args:
        name: The class.
        to: Its new name.
        model: The model folder.
    """
    kept = open_folder(model).rename(name, to).name
    say(f"{name} is called {kept} now.")


def merge(keep: str, /, *others: str, model: ModelPath) -> None:
    """Say that classes are one; predictions for any of them come out as the first.

    Args:
        keep: The class that stays.
        others: The classes that count as it from now on.
        model: The model folder.
    """
    if not others:
        raise GoalError("Name at least two classes: the one to keep, then the others.")
    open_folder(model).merge(keep, others)
    say(f"{', '.join(others)} {'counts' if len(others) == 1 else 'count'} as {keep} now.")


def unmerge(name: str, /, *, model: ModelPath) -> None:
    """Let a merged class stand for itself again.

    Args:
        name: The merged class.
        model: The model folder.
    """
    open_folder(model).unmerge(name)
    say(f"{name} is a class of its own again.")


def history(*, model: ModelPath, json: bool = False) -> None:
    """List everything that was done to the model, each with the number that `goal undo` takes.

    Args:
        model: The model folder.
        json: One JSON object per line.
    """
    entries = open_folder(model).history()
    if json:
        for entry in entries:
            say(dumps(entry._asdict()))
        return
    table = Table("Id", "When (UTC)", "What", "")
    for entry in entries:
        when = entry.time[:16].replace("T", " ")
        table.add_row(str(entry.id), when, entry.said, "undone" if entry.undone else "")
    console.print(table)


def undo(number: int | None = None, /, *, model: ModelPath, stage: bool = False) -> None:
    """Take back the last action (a stage, a renaming, a merge, ...), or drop an unfinished stage.

    Says what it took back; `goal redo` brings it back. Interrupted, the same command ends what
    it began and goes no further.

    Args:
        number: Take back one action, by its number in `goal history`, and no other.
        model: The model folder.
        stage: Take back the last stage, with every correction of its classes made since.
    """
    say(_undoing(model).undo(number, stage))


def redo(*, model: ModelPath) -> None:
    """Do again what the last undo took back, unless something else was done since.

    Args:
        model: The model folder.
    """
    say(_undoing(model).redo())


def _undoing(model: Path) -> "ModelFolder":
    """A model that is to be changed; one that counts its images anew if they were corrected."""
    opened = open_folder(model)
    return open_model(model) if opened.store.history().teaching else opened


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

    opened = open_folder(model)
    opened.store.require()
    page = opened.write_page(None if out is None else writable(out, force)).resolve()
    say(f"Report: {page}")
    if browse:
        webbrowser.open(page.as_uri())


def suggest_names(*, model: ModelPath, names: Path, clip: Path) -> None:
    """Suggest names for discovered classes by a CLIP model.

    Args:
        model: The model folder.
        names: Text file of candidate names, one per line.
        clip: Folder of a transformers CLIP model.
    """
    from goal.models.names import suggest_names as ask

    opened = open_folder(model)
    table = Table("Class", "Suggestion", "Likeliest")
    for label, found in ask(opened.pictures(), names, clip).items():
        likeliest = ", ".join(f"{name} ({cosine:.2f})" for name, cosine in found.likeliest)
        table.add_row(label, found.name or "", likeliest)
    console.print(table)
    console.print("`goal rename` gives a class its name.")
