"""The server of the page: on this machine only, at a port of its own, until it is stopped."""

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from goal.common.errors import GoalError
from goal.models.model import Model
from goal.review.desk import Desk
from goal.review.guard import Guard
from goal.review.originals import Originals
from goal.review.routes import application
from goal.review.service import Service
from goal.review.service import application as predicting
from goal.review.session import Session
from goal.review.thumbnails import Thumbnails

HOST = "127.0.0.1"


def make_desk(model: Model, read_only: bool = False, images: Sequence[Path] = ()) -> Desk:
    """The desk of a model folder.

    Args:
        model: The model.
        read_only: Whether every change is refused; then nothing is written to the folder at all.
        images: Folders in which the images are now.
    """
    learned = [record.source for record in model.records]
    originals = Originals([*images, *(Path(folder) for folder in learned if folder)])
    return Desk(model, Thumbnails(model.store, originals, not read_only), read_only)


def review(desk: Desk, model: Path, port: int | None, announce: Callable[[str], None]) -> None:
    """Serve the page until it is stopped.

    Args:
        desk: What the page works at.
        model: The model folder.
        port: The port; None for that of last time if it is free, or else any.
        announce: Told the address, which opens the page once.
    """
    app, held, address = prepared(desk, model, port)
    threading.Thread(target=desk.warm, daemon=True).start()
    announce(address)
    serve(app, held)


def prepared(desk: Desk, model: Path, port: int | None) -> tuple[ASGIApp, socket.socket, str]:
    """The guarded page, an open socket for it, and the address that opens it once."""
    session = Session(model)
    held = _listening(session.port if port is None else port, port is None)
    here = held.getsockname()[1]
    session.at(here)
    address = f"http://{HOST}:{here}/?token={session.token}"
    return Guard(application(desk), here, session), held, address


def serve_model(model: Model, port: int | None, announce: Callable[[str], None]) -> None:
    """Answer predictions over HTTP until it is stopped.

    Args:
        model: The model.
        port: The port; any if there is none.
        announce: Told the address.
    """
    service = Service(model)
    service.warm()
    held = _listening(port or 0, other_will_do=False)
    here = held.getsockname()[1]
    announce(f"http://{HOST}:{here}")
    serve(Guard(predicting(service), here), held)


def serve(app: ASGIApp, held: socket.socket) -> None:
    """Answer requests at an open socket until Ctrl-C or SIGTERM."""
    with held:
        uvicorn_server(app).run(sockets=[held])


def uvicorn_server(app: ASGIApp) -> uvicorn.Server:
    """A server of HTTP/1.1 that says little, believes no proxy and bounds what it holds."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http="h11",
        ws="none",
        lifespan="off",
        h11_max_incomplete_event_size=64 << 10,
        timeout_graceful_shutdown=3,
        limit_concurrency=256,
    )
    return uvicorn.Server(config)


def _listening(port: int, other_will_do: bool) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((HOST, port))
        held.listen()  # from here on the port is taken
    except OSError as error:
        held.close()
        if not other_will_do:
            raise GoalError(
                f"Port {port} cannot be used ({error.strerror}). Give another, or none."
            ) from error
        return _listening(0, other_will_do=False)
    return held
