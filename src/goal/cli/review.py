"""Commands that serve a model on this machine: the page to agree on, and predictions over HTTP."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from goal.cli.model import Backbone, Download, ModelPath, open_model, say
from goal.common.errors import GoalError

Port = Annotated[int | None, Parameter(help="Port to listen at.")]


def review(
    *,
    model: ModelPath,
    port: Port = None,
    read_only: Annotated[bool, Parameter(negative=(), help="Refuse every change.")] = False,
    browse: Annotated[
        bool, Parameter(name="--open", negative=(), help="Open it in a browser.")
    ] = False,
    images: tuple[Path, ...] = (),
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Open the page on which people and the model agree: name, merge, move, undo.

    Serves it on this machine alone, until Ctrl-C. The address that is printed opens it once, in
    one browser.

    Args:
        model: The model folder.
        port: Port to listen at; any by default.
        read_only: Refuse every change.
        browse: Open the page in a browser.
        images: Folders in which the images are now, if they were moved.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    import webbrowser

    try:
        from goal.review.server import make_desk
        from goal.review.server import review as serve_page
    except ModuleNotFoundError as error:
        raise _missing(error) from error

    opened = open_model(model, None, backbone, download)
    opened.store.require()

    def announce(address: str) -> None:
        say(f"Review {model.resolve().name}: {address}")
        say("The address works once. Stop with Ctrl-C; everything is kept as you go.")
        if browse:
            webbrowser.open(address)

    try:
        serve_page(make_desk(opened, read_only, images), model, port, announce)
    except KeyboardInterrupt:
        say("Stopped.")


def serve(
    *,
    model: ModelPath,
    port: Port = None,
    device: str | None = None,
    backbone: Backbone = None,
    download: Download = False,
) -> None:
    """Tell classes over HTTP, on this machine alone: POST /predict with an image or features.

    GET /classes, /health and /openapi.json say more. Requests that come together are looked at
    together. Runs until Ctrl-C.

    Args:
        model: The model folder.
        port: Port to listen at; any by default.
        device: Where to compute, if not where the model was fitted.
        backbone: Where the backbone is now, if it was moved.
        download: Fetch the backbone if it is not on this machine.
    """
    from goal.common.progress import Reporter

    try:
        from goal.review.server import serve_model
    except ModuleNotFoundError as error:
        raise _missing(error) from error

    opened = open_model(model, device, backbone, download)
    opened.store.require()
    opened.reporter = Reporter()

    def announce(address: str) -> None:
        say(f"Serving {model.resolve().name}: {address}/predict (described: /openapi.json)")

    try:
        serve_model(opened, port, announce)
    except KeyboardInterrupt:
        say("Stopped.")


def _missing(error: ModuleNotFoundError) -> Exception:
    if error.name not in ("starlette", "uvicorn"):
        return error
    return GoalError("This needs an extra: pip install 'goal-cgcd[review]'")
