"""Commands that look for images in a model: by likeness, by copies, by what is worth asking."""

from typing import Annotated

from cyclopts import Parameter

from goal.cli.common import console, reporter
from goal.cli.model import Backbone, Download, ModelPath, open_folder, open_model, say

_SHOWN = 10  # copies of an image that are listed


def search(
    image: str,
    /,
    *,
    model: ModelPath,
    top: Annotated[int, Parameter(help="How many to find.")] = 50,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Find the images of a model that are most like a given one.

    Args:
        image: An image file; or a feature, as a file with one row.
        model: The model folder.
        top: How many to find.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    from goal.features.labelled import open_given

    open_folder(model).store.require()
    opened = open_model(model, None, backbone, download)
    names = opened.roster.names
    for hit in opened.search(open_given([image], reporter()), top):
        label = "unknown" if hit.class_id < 0 else names[hit.class_id]
        say(f"{hit.cosine:.4f}  {label}  {hit.file}")


def duplicates(*, model: ModelPath, backbone: Backbone = None, download: Download = False) -> None:
    """List images of a model that are near-copies of one another: saved again, or resized.

    Args:
        model: The model folder.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    open_folder(model).store.require()
    groups = open_model(model, None, backbone, download).duplicates()
    if not groups:
        console.print("No image is a near-copy of another.")
    for group in groups:
        copies = "a near-copy" if len(group) == 2 else f"{len(group) - 1:,} near-copies"
        say(f"{group[0].file} has {copies}:")
        for hit in group[1 : _SHOWN + 1]:
            say(f"  {hit.cosine:.4f}  {hit.file}")
        if len(group) > _SHOWN + 1:
            say(f"  and {len(group) - _SHOWN - 1:,} more")


def next_(
    *,
    model: ModelPath,
    count: Annotated[int, Parameter(help="How many questions.")] = 20,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Say what to look at first: the questions whose answers teach a model most.

    Args:
        model: The model folder.
        count: How many questions.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    open_folder(model).store.require()
    found = open_model(model, None, backbone, download).next(count)
    if not found:
        console.print("There is nothing to ask: no class was discovered.")
    for number, one in enumerate(found, start=1):
        say(f"{number}. {one.why}")
        for file in one.files:
            say(f"     {file}")
