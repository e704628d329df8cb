"""Find a dataset on disk, fetch it if asked to, or say what is missing and how to get it."""

from dataclasses import dataclass
from pathlib import Path

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.download import Opener, fetch, open_url
from goal.data.images import DataSettings


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what it looks like on disk.

    `folder` is its folder below the root, `files` are the things that must be in there, `url` is
    an archive or, when `checksum` is empty, a page where people register and download by hand.
    """

    title: str
    folder: str
    files: tuple[str, ...]
    url: str
    checksum: str = ""

    def missing(self, place: Path) -> list[Path]:
        """Return the files and folders that `place` lacks."""
        return [place / name for name in self.files if not (place / name).exists()]


def locate(
    source: Source,
    settings: DataSettings,
    reporter: Reporter,
    *,
    opener: Opener = open_url,
) -> Path:
    """Return the folder that holds the dataset: ``root/folder`` or the root itself.

    Raises:
        GoalError: Something is missing, with directions; or the download failed.
    """
    root = Path(settings.root).expanduser()
    places = (root / source.folder, root)
    complete = [place for place in places if not source.missing(place)]
    if complete:
        return complete[0]
    nearest = min(places, key=lambda place: len(source.missing(place)))
    if not settings.download or not source.checksum or places[0].exists():
        raise GoalError(_directions(source, nearest, root, settings.download))
    found = fetch(
        source.url, source.checksum, root, source.folder, reporter=reporter, opener=opener
    )
    if source.missing(found):
        raise GoalError(_directions(source, found, root, settings.download))
    return found


def _directions(source: Source, place: Path, root: Path, download: bool) -> str:
    lines = [
        f"{source.title} is not complete: {source.missing(place)[0]} is missing.",
        f"Get it from {source.url} and put it so that {root / source.folder} "
        f"holds {', '.join(source.files)}.",
    ]
    if not source.checksum:
        lines.append("Its licence asks for an account, so --download cannot fetch it.")
    elif download:
        lines.append(f"Move {root / source.folder} away, and --download fetches it anew.")
    else:
        lines.append("Or add --download to fetch it.")
    return " ".join(lines)
