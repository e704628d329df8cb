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
from goal.common.escaping import file_name, visible
from goal.data.decoding import UnreadableImage
from goal.data.images import DIGEST_BYTES, Images, Subset
from goal.data.listing import lines_of
from goal.data.own_images import ImageSet
from goal.features.origin import GIVEN, MOST_WIDTH, Origin
from goal.features.store import FeatureStore, is_store
from goal.storage.archives import array_names, mapped_array, read_arrays
from goal.storage.tables import allowance, column_names, read_columns

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
    try:
        return any(name in _FEATURES for name in column_names(path, given=True))
    except GoalError:
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
    if array.shape[1] > MOST_WIDTH:
        raise GoalError(f"{what}: {array.shape[1]:,} numbers each are more than {MOST_WIDTH:,}.")
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
    if names is None:
        shown = [f"row {row}" for row in range(len(array))]
    else:
        shown = [visible(str(name)) for name in names]
    made = origin or Origin(backbone=GIVEN, fingerprint=f"given-{width}", reads=GIVEN, width=width)
    images = FeatureImages(array, [_digest(row) for row in array], made)
    texts = None if labels is None else [str(label) for label in labels]
    return Given(_named(images, shown), texts)


def _named(images: FeatureImages, names: Sequence[str]) -> ImageSet:
    return ImageSet(images, list(names), list(range(len(names))), [])


def read_labels(path: Path, count: int) -> list[str]:
    """Read one label per feature: a ``.npy`` file, or a text file with one per line."""
    if path.suffix.lower() == ".npy":
        labels = [str(label) for label in _column(mapped_array(path, given=True), path)]
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


def _read_npy(path: Path) -> _Read:
    return mapped_array(path, given=True), None, None


def _read_npz(path: Path) -> _Read:
    most = allowance(path.stat().st_size)
    found = read_arrays(path, most, given=True, wanted=_KNOWN)
    features = _first(found, _FEATURES)
    if features is None:
        listed = ", ".join(map(visible, array_names(path, given=True)))
        raise GoalError(
            f"{file_name(path)} holds {listed or 'nothing'}; expected an array called "
            f"one of: {', '.join(_FEATURES)}."
        )
    names, labels = _first(found, _NAMES), _first(found, _LABELS)
    return (
        features,
        None if names is None else _column(names, path),
        None if labels is None else _column(labels, path),
    )


def _column(values: npt.NDArray[Any], path: Path) -> list[Any]:
    """One value for each feature."""
    if values.ndim != 1:
        raise GoalError(
            f"{file_name(path)}: names and labels are one per feature; given: an array of shape "
            f"{values.shape}."
        )
    return list(values.tolist())


def _read_parquet(path: Path) -> _Read:
    listed = column_names(path, given=True)
    found = read_columns(path, [name for name in listed if name in _KNOWN], given=True)
    features = _first(found, _FEATURES)
    if features is None:
        raise GoalError(
            f"{file_name(path)} has the columns {', '.join(map(visible, listed))}; expected a "
            f"column of lists of numbers called one of: {', '.join(_FEATURES)}."
        )
    names, labels = _first(found, _NAMES), _first(found, _LABELS)
    return (
        _table_of(features, path),
        None if names is None else [str(name) for name in names.to_pylist()],
        None if labels is None else labels.to_pylist(),
    )


def _table_of(lists: Any, path: Path) -> npt.NDArray[Any]:
    """A column of lists as an array (N, D)."""
    import pyarrow
    from pyarrow import compute

    lengths = compute.list_value_length(lists) if _is_list(lists) and len(lists) else None
    if lengths is None or lists.null_count or len(compute.unique(lengths)) != 1:
        raise GoalError(f"{file_name(path)}: features must be lists of equally many numbers.")
    try:
        flat = lists.flatten().to_numpy(zero_copy_only=False)
    except pyarrow.ArrowException as error:
        raise GoalError(f"Cannot read {file_name(path)} as a table: {error}.") from error
    return np.asarray(flat.reshape(len(lists), -1))


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
