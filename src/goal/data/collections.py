"""Images that do not lie in folders: lists of files, tar shards, Hugging Face datasets, addresses.

photos.csv, photos.parquet, photos.txt   a column `file` or `path`, or a line each; relative
                                         paths are relative to the list
shard-000.tar                            images by member, read in place
a folder of `datasets.save_to_disk`      its first column of images (extra `datasets`)
s3://bucket/prefix, gs://, memory://     every image below it, through fsspec; what is not on this
                                         machine only if the person asks for the network
"""

import csv
import hashlib
import io
import os
import tarfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.progress import Reporter
from goal.data.decoding import Budget, UnreadableImage, decode, explain, opened_file
from goal.data.images import DIGEST_BYTES, FileImages
from goal.data.listing import IMAGE_SUFFIXES, lines_of, text_of
from goal.data.own_images import ImageSet, from_files
from goal.data.screening import screen, screen_below
from goal.data.tar_files import members
from goal.storage.tables import column_names, read_columns

_LISTS = (".csv", ".txt", ".parquet")
_COLUMNS = ("file", "path", "image", "filename", "file_name")
_MOST_MEMBER_BYTES = 1_000_000_000
_READING = Budget(_MOST_MEMBER_BYTES)  # of files that are held in memory to be decoded
_HERE = frozenset({"file", "local", "memory", "zip", "tar", "dir"})


def open_images(
    places: Sequence[Path | str], reporter: Reporter, download: bool = False
) -> ImageSet:
    """Open all images that the places hold, in order.

    Args:
        places: Folders, files, lists, tar shards, datasets or addresses.
        reporter: Told how far it has come.
        download: Whether addresses may be asked that are not on this machine.
    """
    if not places:
        raise GoalError("Give at least one folder or file of images.")
    return _joined([_open(place, reporter, download) for place in places])


def _open(place: Path | str, reporter: Reporter, download: bool) -> ImageSet:
    if "://" in str(place):
        _require_asked(str(place), download)
        return _at_address(str(place))
    path = Path(place)
    if path.suffix.lower() == ".tar" and path.is_file():
        return _in_tar(path)
    if path.suffix.lower() in _LISTS and path.is_file():
        return from_files(screen(_listed(path), reporter), path.parent)
    if (path / "dataset_info.json").is_file() and (path / "state.json").is_file():
        return _in_dataset(path)
    return from_files(screen_below(path, reporter), path if path.is_dir() else path.parent)


class ReadImages:
    """Images whose files are read as bytes from wherever they are."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.labels: IntArray = np.zeros(len(names), np.int64)

    @abstractmethod
    def size(self, index: int) -> int:
        """Bytes of the image file."""

    @abstractmethod
    def content(self, index: int) -> bytes:
        """Bytes of the image file, or raise an `OSError`."""

    def image(self, index: int) -> Image.Image:
        """Decode the image, or raise an error that names it."""
        with _READING.holding(self.size(index)):
            try:
                return decode(io.BytesIO(self._bytes(index)))
            except UnreadableImage as error:
                raise UnreadableImage(self.names[index], error.reason) from error

    def digest(self, index: int) -> bytes:
        """Hash of the file's bytes."""
        with _READING.holding(self.size(index)):
            return hashlib.sha256(self._bytes(index)).digest()[:DIGEST_BYTES]

    def _bytes(self, index: int) -> bytes:
        if self.size(index) > _MOST_MEMBER_BYTES:
            raise UnreadableImage(self.names[index], f"larger than {_MOST_MEMBER_BYTES:,} bytes")
        try:
            return self.content(index)
        except Exception as error:  # stores at addresses raise errors of their own
            raise UnreadableImage(self.names[index], explain(error)) from error


# -- lists of files -------------------------------------------------------------------------------


def _listed(path: Path) -> list[Path]:
    """Files that a list names; relative ones lie beside the list."""
    readers: dict[str, Callable[[Path], list[str]]] = {
        ".csv": _csv_column,
        ".parquet": _parquet_column,
        ".txt": lines_of,
    }
    return [path.parent / name for name in readers[path.suffix.lower()](path)]


def _csv_column(path: Path) -> list[str]:
    try:
        rows = csv.DictReader(io.StringIO(text_of(path), newline=""))
        column = _choose(rows.fieldnames or [], path)
        return [row[column] for row in rows if row[column]]
    except csv.Error as error:
        raise GoalError(f"Cannot read {file_name(path)}: {error}.") from error


def _parquet_column(path: Path) -> list[str]:
    column = _choose(column_names(path, given=True), path)
    values = read_columns(path, [column], given=True)[column].to_pylist()
    return [str(value) for value in values if value]


def _choose(columns: Sequence[str], path: Path) -> str:
    for name in _COLUMNS:
        if name in columns:
            return name
    raise GoalError(
        f"{file_name(path)} has the columns {', '.join(map(visible, columns)) or '(none)'}; "
        f"expected one of: {', '.join(_COLUMNS)}."
    )


# -- tar shards -----------------------------------------------------------------------------------


class TarImages(ReadImages):
    """Images in an uncompressed tar file, read in place."""

    def __init__(self, path: Path, names: list[str], spans: list[tuple[int, int]]) -> None:
        super().__init__(names)
        self._path = path
        self._spans = spans

    def size(self, index: int) -> int:
        """Bytes of one member."""
        return self._spans[index][1]

    def content(self, index: int) -> bytes:
        """Bytes of one member."""
        offset, size = self._spans[index]
        with opened_file(self._path) as stream:
            stream.seek(offset)
            return stream.read(size)


def _in_tar(path: Path) -> ImageSet:
    names, spans = [], []
    try:
        with opened_file(path) as stream:
            for _, member in members(stream):
                if member.isfile() and member.name.lower().endswith(IMAGE_SUFFIXES):
                    names.append(f"{file_name(path)}/{visible(member.name)}")
                    spans.append((member.offset_data, member.size))
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        raise GoalError(
            f"Cannot read {file_name(path)} as an uncompressed tar file: {error}."
        ) from error
    return ImageSet(TarImages(path, names, spans), names, list(range(len(names))), [])


# -- Hugging Face datasets ------------------------------------------------------------------------


class DatasetImages:
    """A column of images of a Hugging Face dataset, not yet decoded."""

    def __init__(self, column: Any, names: Sequence[str]) -> None:
        self._column = column
        self._names = names
        self.labels: IntArray = np.zeros(len(names), np.int64)

    def image(self, index: int) -> Image.Image:
        """Decode the image, or raise an error that names it."""
        try:
            entry = self._column[index]
            content, path = entry["bytes"], entry["path"]
        except Exception as error:  # the library raises almost anything on damaged files
            raise UnreadableImage(self._names[index], explain(error)) from error
        if content is None and (path is None or "://" in path or "::" in path):
            raise UnreadableImage(self._names[index], "it is not on this machine")
        try:
            return decode(path if content is None else io.BytesIO(content))
        except UnreadableImage as error:
            raise UnreadableImage(self._names[index], error.reason) from error

    def digest(self, index: int) -> bytes:
        """Hash of size and pixels."""
        image = self.image(index)
        return hashlib.sha256(f"{image.size}|".encode() + image.tobytes()).digest()[:DIGEST_BYTES]


def _in_dataset(folder: Path) -> ImageSet:
    try:
        import datasets
    except ImportError:
        raise GoalError(
            f"{file_name(folder)} is a Hugging Face dataset: pip install 'goal-cgcd[datasets]'."
        ) from None
    try:
        found = datasets.load_from_disk(str(folder))
        kinds = found.features.items()
        columns = [name for name, kind in kinds if isinstance(kind, datasets.Image)]
        if not columns:
            raise GoalError(f"{file_name(folder)} has no column of images.")
        # The library would decode any format, and fetch what is named by an address.
        column = found.cast_column(columns[0], datasets.Image(decode=False))[columns[0]]
    except GoalError:
        raise
    except Exception as error:  # the library raises almost anything on damaged files
        raise GoalError(f"Cannot read the dataset {file_name(folder)}: {explain(error)}") from error
    names = [f"{file_name(folder)}/{index}" for index in range(len(found))]
    return ImageSet(DatasetImages(column, names), names, list(range(len(names))), [])


# -- addresses ------------------------------------------------------------------------------------


class AddressImages(ReadImages):
    """Files of an object store, through fsspec."""

    def __init__(self, system: Any, sizes: Mapping[str, int]) -> None:
        self._system = system
        self._paths = list(sizes)
        self._sizes = list(sizes.values())
        super().__init__([visible(path) for path in self._paths])

    def size(self, index: int) -> int:
        """Bytes of one file, as its store has it."""
        return self._sizes[index]

    def content(self, index: int) -> bytes:
        """Bytes of one file, if it is not too large."""
        with self._system.open(self._paths[index], "rb") as stream:
            found = bytes(stream.read(_MOST_MEMBER_BYTES + 1))
        if len(found) > _MOST_MEMBER_BYTES:
            raise OSError(f"larger than {_MOST_MEMBER_BYTES:,} bytes")
        return found


def _require_asked(address: str, download: bool) -> None:
    """Raise an error for an address on the network that nobody asked to go to."""
    parts = [part.partition("://")[0] for part in address.split("::")]
    if not download and not _HERE.issuperset(parts):
        raise GoalError(
            f"{visible(address)} is on the network, and nothing was fetched because this command "
            "was not asked to: give --download."
        )


def _at_address(address: str) -> ImageSet:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(address)
        sizes = {path: int(facts["size"] or 0) for path, facts in _listing(system, root).items()}
    except ImportError as error:
        raise GoalError(f"{visible(address)} needs a package more: {error}.") from None
    except Exception as error:  # each store raises errors of its own
        raise GoalError(f"Cannot list {visible(address)}: {explain(error)}.") from error
    found = {path: sizes[path] for path in sorted(sizes) if path.lower().endswith(IMAGE_SUFFIXES)}
    if not found:
        raise GoalError(f"There are no images at {visible(address)}.")
    images = AddressImages(system, found)
    return ImageSet(images, list(images.names), list(range(len(found))), [])


def _listing(system: Any, root: str) -> dict[str, Any]:
    """Every file at or below an address, with what its store says of it."""
    if system.isdir(root):
        return dict(system.find(root, detail=True))
    return {root: system.info(root)}


# -- several places -------------------------------------------------------------------------------


class Several:
    """Images of several sources, one after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part.labels) for part in parts])
        self.labels: IntArray = np.zeros(int(self._ends[-1]), np.int64)

    def place(self, index: int) -> tuple[Any, int]:
        """The source of image `index`, and its position there."""
        part = int(np.searchsorted(self._ends, index, side="right"))
        before = 0 if part == 0 else int(self._ends[part - 1])
        return self._parts[part], index - before

    def image(self, index: int) -> Image.Image:
        """Decode image `index`."""
        source, position = self.place(index)
        return source.image(position)  # type: ignore[no-any-return]

    def digest(self, index: int) -> bytes:
        """Hash of image `index`."""
        source, position = self.place(index)
        return source.digest(position)  # type: ignore[no-any-return]


def _joined(parts: Sequence[ImageSet]) -> ImageSet:
    """One set of all parts; files of several folders stay one list of files."""
    if len(parts) == 1:
        return parts[0]
    names = [name for part in parts for name in part.names]
    skipped = [entry for part in parts for entry in part.skipped]
    if all(isinstance(part.images, FileImages) for part in parts):
        paths = [path for part in parts for path in part.images.paths]  # type: ignore[attr-defined]
        images: Any = FileImages(paths, np.zeros(len(paths), np.int64))
    else:
        images = Several([part.images for part in parts])
    return ImageSet(images, names, list(range(len(names))), skipped, _shared(parts))


def _shared(parts: Sequence[ImageSet]) -> str | None:
    """The folder that holds the folders of all parts, None if there is none."""
    folders = [part.source for part in parts if part.source is not None]
    if len(folders) < len(parts):
        return None
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on several drives
        return None
