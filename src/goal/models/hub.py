"""Passing models on: to a folder or to a hub, and from there to a model folder."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import huggingface_hub

from goal.common.errors import GoalError
from goal.models.card import Measured, card
from goal.models.folder import ModelFolder
from goal.models.pushed import ABOUT, PICTURES, TENSORS, unpack_model, write_pushed
from goal.storage.files import write_text

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SECONDS_TO_ANSWER = 20.0


def is_hub_id(target: str) -> bool:
    """Whether a text names a model of a hub, ``user/name``; a folder is spelt ``./name``."""
    return _HUB_ID.fullmatch(target) is not None


def push(
    model: ModelFolder,
    target: str,
    *,
    pictures: bool = False,
    measured: Measured | None = None,
    public: bool = False,
    endpoint: str | None = None,
) -> str:
    """Pass a model on, without the images that it learned; return where it is.

    Args:
        model: The model.
        target: ``user/name`` on the hub, or a new folder such as ``./name``.
        pictures: Whether small pictures of discovered classes go with it.
        measured: How often it is right, for its card.
        public: Whether a repository that is made for it is open to everybody.
        endpoint: The hub; by default that of the environment.
    """
    model.store.require()
    if not is_hub_id(target):
        place = Path(target).expanduser()
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise GoalError(f"{place} is not empty. Choose another folder.")
        _write(model, place, place.resolve().name, pictures, measured)
        return str(place.resolve())
    with TemporaryDirectory(prefix="goal-push-") as folder:
        _write(model, Path(folder), target, pictures, measured)
        return _upload(Path(folder), target, public, endpoint)


def pull(source: str, folder: Path, *, download: bool = True, endpoint: str | None = None) -> None:
    """Make a model folder of a pushed model.

    Args:
        source: Where it is: a folder, or ``user/name`` on the hub.
        folder: The model folder, new or empty.
        download: Whether the hub may be asked; otherwise it must have been fetched before.
        endpoint: The hub; by default that of the environment.
    """
    place = Path(source).expanduser()
    if (place / ABOUT).is_file() or not is_hub_id(source):
        unpack_model(place, folder)
    else:
        unpack_model(_fetched(source, download, endpoint), folder)


def _write(
    model: ModelFolder, folder: Path, name: str, pictures: bool, measured: Measured | None
) -> None:
    about = write_pushed(model, folder, pictures)
    write_text(folder / "README.md", card(model, about, name, folder, measured))


def _upload(folder: Path, target: str, public: bool, endpoint: str | None) -> str:
    hub = huggingface_hub.HfApi(endpoint=endpoint)
    try:
        made = hub.create_repo(target, private=not public, exist_ok=True)
        hub.upload_folder(
            repo_id=target,
            folder_path=folder,
            commit_message="Model pushed by goal",
            delete_patterns=[f"{PICTURES}/*"],  # of an earlier push that had some
        )
    except Exception as error:  # the library raises almost anything, network errors included
        raise GoalError(
            f"Cannot push to {target} ({type(error).__name__}: {error}). Is the network there, and "
            "did `hf auth login` tell this machine who you are? `goal push MODEL ./FOLDER` writes "
            "the same files without a network."
        ) from error
    return str(made)


def _fetched(source: str, download: bool, endpoint: str | None) -> Path:
    """The folder of a hub's model on this machine."""
    try:
        return Path(
            huggingface_hub.snapshot_download(
                source,
                endpoint=endpoint,
                allow_patterns=[ABOUT, TENSORS],
                local_files_only=not download,
                etag_timeout=_SECONDS_TO_ANSWER,
            )
        )
    except Exception as error:
        how = "" if download else " Nothing was fetched, because that was not asked for."
        raise GoalError(
            f"Cannot fetch {source} ({type(error).__name__}).{how} Check the name and the network; "
            "a folder is spelt ./NAME."
        ) from error
