"""Features as people hand them over: stores, arrays in files, tables, or arrays in memory.

A set of features takes the place of a set of images wherever a model learns or predicts.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.data.decoding import UnreadableImage
from goal.data.images import DIGEST_BYTES, Images, Subset
from goal.data.listing import lines_of
from goal.data.own_images import ImageSet
from goal.features.origin import GIVEN, Origin
from goal.features.store import FeatureStore, is_store

SUFFIXES = (".npy", ".npz", ".parquet")
_MOST_BYTES = 64_000_000_000
_ROWS = 65_536  # looked through together
_FEATURES = ("feature", "features", "embedding", "embeddings", "X")
_LABELS = ("label", "labels", "class", "y")
_NAMES = ("name", "names", "file", "path", "id", "key")


class FeatureImages:
    """Images of which only the feature is known; they take the place of images everywhere."""

    def __init__(
        self, features_ND: npt.NDArray[Any], digests: Sequence[bytes], origin: Origin
    ) -> None:
        self.features = features_ND
        self.digests = digests
        self.origin = origin
        self.labels: IntArray = np.zeros(len(digests), np.int64)

    def image(self, index: int) -> Image.Image:
        """Refuse: nobody knows what the image looks like."""
        raise UnreadableImage(f"of feature {index}", "only its feature is known")

    def digest(self, index: int) -> bytes:
        """What the feature is recognised by."""
        return self.digests[index]


def known_features(images: Images) -> FeatureImages | None:
    """The features behind a set of images, None if there are pixels to look at."""
    while isinstance(images, Subset):
        images = images.images
    return images if isinstance(images, FeatureImages) else None


@dataclass(frozen=True)
class Given:
    """Features as a set of images, and a class name for each if they came with any."""

    images: ImageSet
    labels: list[str] | None


def is_features(place: Path) -> bool:
    """Whether a path names features rather than images; a Parquet file may be a list of files."""
    if place.is_dir():
        return is_store(place)
    suffix = place.suffix.lower()
    return suffix in SUFFIXES and (suffix != ".parquet" or _has_features(place))


def _has_features(path: Path) -> bool:
    import pyarrow
    import pyarrow.parquet

    try:
        return any(name in _FEATURES for name in pyarrow.parquet.read_schema(path).names)
    except (OSError, pyarrow.ArrowException):
        return False


def read_features(place: Path) -> Given:
    """Read features from a store or a file, or raise an error that says what to give."""
    if place.is_dir():
        store = FeatureStore(place)
        listed = store.names()
        images = FeatureImages(store.features(), store.digests(), store.origin)
        return Given(_named(images, listed), _class_folders(listed))
    if not place.is_file():
        raise GoalError(f"There is no file or folder {file_name(place)}.")
    if place.stat().st_size > _MOST_BYTES:
        raise GoalError(f"{file_name(place)} is larger than {_MOST_BYTES:,} bytes. Give parts.")
    reader = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}[place.suffix.lower()]
    features, names, labels = reader(place)
    return feature_set(features, names, labels, file_name(place))


def feature_set(
    features: Any,
    names: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    what: str = "the features",
    origin: Origin | None = None,
) -> Given:
    """Wrap an array of features (N, D) of any origin."""
    array = np.asarray(features)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        raise GoalError(
            f"{what} must be numbers of shape (images, width); given: {array.dtype} of shape "
            f"{array.shape}."
        )
    array = array.astype(np.float32, copy=False) if array.dtype != np.float16 else array
    for start in range(0, len(array), _ROWS):
        bad = np.flatnonzero(~np.isfinite(array[start : start + _ROWS]).all(axis=1))
        if len(bad):
            raise GoalError(
                f"{what}: row {start + bad[0]} holds a number that is not finite. Leave it out."
            )
    for column, given in (("names", names), ("labels", labels)):
        if given is not None and len(given) != len(array):
            raise GoalError(f"{what}: {len(given)} {column} for {len(array)} features.")
    width = array.shape[1]
    shown = [f"row {row}" for row in range(len(array))] if names is None else list(map(str, names))
    made = origin or Origin(backbone=GIVEN, fingerprint=f"given-{width}", reads=GIVEN, width=width)
    images = FeatureImages(array, [_digest(row) for row in array], made)
    texts = None if labels is None else [str(label) for label in labels]
    return Given(_named(images, shown), texts)


def _named(images: FeatureImages, names: Sequence[str]) -> ImageSet:
    return ImageSet(images, list(names), list(range(len(names))), [])


def read_labels(path: Path, count: int) -> list[str]:
    """Read one label per feature: a ``.npy`` file, or a text file with one per line."""
    if path.suffix.lower() == ".npy":
        labels = [str(label) for label in _load_array(path).tolist()]
    else:
        labels = lines_of(path)
    if len(labels) != count:
        raise GoalError(f"{file_name(path)} holds {len(labels)} labels for {count} features.")
    return labels


def _digest(row: npt.NDArray[Any]) -> bytes:
    head = f"feature|{row.dtype}|".encode()
    return hashlib.sha256(head + row.tobytes()).digest()[:DIGEST_BYTES]


def _class_folders(names: Sequence[str]) -> list[str] | None:
    """Class folder of each name: the first one in which names differ; None if they do not."""
    folders = [PurePosixPath(name).parent.parts for name in names]
    levels = zip(*folders, strict=False)
    shared = len(list(takewhile(lambda level: len(set(level)) == 1, levels)))
    if any(len(parts) <= shared for parts in folders):
        return None
    return [parts[shared] for parts in folders]


_Read = tuple[Any, Sequence[str] | None, Sequence[Any] | None]


def _load_array(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise GoalError(f"Cannot read {file_name(path)} as an array: {error}.") from error


def _read_npy(path: Path) -> _Read:
    return _load_array(path), None, None


def _read_npz(path: Path) -> _Read:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _MOST_BYTES:
                raise GoalError(f"{file_name(path)} unpacks to more than {_MOST_BYTES:,} bytes.")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files if name in _KNOWN}
            listed = arrays.files
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise GoalError(f"Cannot read {file_name(path)} as arrays: {error}.") from error
    features = _first(found, _FEATURES)
    if features is None:
        raise GoalError(
            f"{file_name(path)} holds {', '.join(listed) or 'nothing'}; expected an array called "
            f"one of: {', '.join(_FEATURES)}."
        )
    names, labels = _first(found, _NAMES), _first(found, _LABELS)
    return features, None if names is None else names.tolist(), _listed(labels)


def _read_parquet(path: Path) -> _Read:
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(path)
        columns = [name for name in schema.names if name in _KNOWN]
        table = pyarrow.parquet.read_table(path, columns=columns)
    except (OSError, pyarrow.ArrowException) as error:
        raise GoalError(f"Cannot read {file_name(path)} as a table: {error}.") from error
    found = {name: table.column(name).combine_chunks() for name in columns}
    features = _first(found, _FEATURES)
    if features is None:
        raise GoalError(
            f"{file_name(path)} has the columns {', '.join(schema.names)}; expected a column of "
            f"lists of numbers called one of: {', '.join(_FEATURES)}."
        )
    flat = features.flatten().to_numpy(zero_copy_only=False) if _is_list(features) else None
    if flat is None or len(flat) % len(features) or features.null_count:
        raise GoalError(f"{file_name(path)}: features must be lists of equally many numbers.")
    names, labels = _first(found, _NAMES), _first(found, _LABELS)
    return (
        flat.reshape(len(features), -1),
        None if names is None else [str(name) for name in names.to_pylist()],
        None if labels is None else labels.to_pylist(),
    )


_KNOWN = frozenset({*_FEATURES, *_LABELS, *_NAMES})


def _is_list(column: Any) -> bool:
    import pyarrow

    kind = column.type
    return bool(
        pyarrow.types.is_list(kind)
        or pyarrow.types.is_large_list(kind)
        or pyarrow.types.is_fixed_size_list(kind)
    )


def _first(found: dict[str, Any], wanted: Sequence[str]) -> Any:
    return next((found[name] for name in wanted if name in found), None)


def _listed(values: Any) -> list[Any] | None:
    return None if values is None else list(values.tolist())
