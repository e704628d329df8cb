"""Commands that pass models on."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from goal.cli.model import Backbone, Download, ModelPath, open_folder, open_model, say


def push(
    model: Path,
    target: str,
    /,
    *,
    test: Path | None = None,
    pictures: Annotated[bool, Parameter(negative=())] = False,
    public: Annotated[bool, Parameter(negative=())] = False,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Pass a model on: safetensors, JSON and a card with its figures, to the hub or to a folder.

    No image that the model learned is uploaded, and no name of one.

    Args:
        model: The model folder.
        target: user/name on the Hugging Face hub, or a new folder such as ./name.
        test: Labelled images, one folder per class, on which its card says how often it is right.
        pictures: Show small pictures of the discovered classes on its card: these are uploaded.
        public: Let everybody see a repository that is made; by default it is private.
        backbone: Where the backbone is now, if it was moved; only --test needs it.
        download: Fetch the backbone if it is not on this machine.
    """
    from goal.models.hub import push as pushed

    measured = None
    if test is not None:
        from goal.models.card import measure

        opened = open_model(model, None, backbone, download)
        opened.store.require()
        measured = measure(opened, test)
    where = pushed(open_folder(model), target, pictures=pictures, measured=measured, public=public)
    say(f"Pushed: {where}")


def pull(source: str, /, *, model: ModelPath) -> None:
    """Make a model folder of a pushed model, which predicts and discovers as the original does.

    Args:
        source: user/name on the Hugging Face hub, or a folder of `goal push`.
        model: The model folder to make.
    """
    from goal.models.hub import pull as pulled

    pulled(source, model)
    opened = open_folder(model)
    opened.refresh()
    say(f"Model: {model.resolve()} ({len(opened.roster.ids())} classes)")
