"""Near-copies are told from other images: real ones, saved again and resized, and planted ones."""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from goal import GoalPlus
from goal.backbone.features import Embedder, load_embedder
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.data.transforms import prepared
from goal.features.embed import run
from goal.features.labelled import open_given
from goal.numerics.copies import NEAR, originals, usual_gap
from tests.models.digit_folders import digits
from tests.models.planted import cloud, labelled_model


def test_the_usual_gap_is_the_median_distance_to_the_nearest_other() -> None:
    points = np.random.default_rng(0).normal(size=(60, 5))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    nearest = [
        min(float(((one - other) ** 2).sum()) for j, other in enumerate(unit) if i != j)
        for i, one in enumerate(unit)
    ]
    assert usual_gap(points) == pytest.approx(np.median(nearest))
    assert usual_gap(points[:1]) == 0


def test_originals_agree_with_a_slow_search() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(40, 24))
    copies = points[rng.integers(0, 40, 60)] * 3 + 0.01 * rng.normal(size=(60, 24))
    whole = np.concatenate([points, copies])[rng.permutation(100)]
    gap = usual_gap(points)
    unit = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    slow: list[int] = []
    for at, one in enumerate(unit):
        earlier = [i for i in range(at) if slow[i] == i]
        near = [i for i in earlier if float(((unit[i] - one) ** 2).sum()) <= NEAR * gap]
        slow.append(near[0] if near else at)
    found = originals(whole, gap)
    assert found.tolist() == slow and len(set(slow)) == 40
    assert originals(whole[:0], gap).tolist() == []
    assert originals(whole, 0.0).tolist() == list(range(100))


def test_a_picture_saved_again_and_resized_is_one_picture() -> None:
    pictures = [
        image.convert("L").resize((64, 64), Image.Resampling.BICUBIC) for image in digits()[0][:120]
    ]
    again = [*_saved_again(pictures[5]), *_saved_again(pictures[17])]
    embedder = load_embedder("digits-vit")
    features = _features(embedder, [*pictures, *again])
    found = originals(features, usual_gap(features[:120]))
    assert found[120:].tolist() == [5] * 5 + [17] * 5
    assert np.mean(found[:120] == np.arange(120)) > 0.97


def _saved_again(image: Image.Image) -> list[Image.Image]:
    saved = []
    for kind, options in (
        ("JPEG", {"quality": 90}),
        ("JPEG", {"quality": 75}),
        ("WEBP", {"quality": 85}),
    ):
        content = io.BytesIO()
        image.save(content, kind, **options)
        saved.append(Image.open(io.BytesIO(content.getvalue())).convert("RGB"))
    larger = [image.resize((side, side), Image.Resampling.BICUBIC) for side in (96, 128)]
    return [*saved, *larger]


def _features(embedder: Embedder, images: list[Image.Image]) -> npt.NDArray[np.float32]:
    crops = [prepared(image.convert("RGB"), embedder.preprocessing) for image in images]
    return np.concatenate(
        [run(embedder, np.stack(crops[at : at + 64])) for at in range(0, len(crops), 64)]
    ).astype(np.float32)


def test_thirty_copies_of_a_picture_are_no_class(tmp_path: Path) -> None:
    model = labelled_model(tmp_path / "m")
    strange = cloud(9, 1, seed=3) + 0.001 * cloud(10, 30, seed=4)
    for name, extra in (("copies", strange), ("class", cloud(9, 30, seed=3))):
        known = np.concatenate([cloud(label, 25, seed=1) for label in range(4)])
        np.savez(tmp_path / f"{name}.npz", features=np.concatenate([known, extra]))
    given = {name: _open(tmp_path / f"{name}.npz") for name in ("copies", "class")}
    assert model.discover(given["copies"]) is None
    record = model.discover(given["class"])
    assert record is not None and len(record.names) == 1


def test_copies_of_rows_count_once_for_arrays_too() -> None:
    features = np.concatenate([cloud(label, 60, seed=0) for label in range(4)])
    known = np.concatenate([cloud(label, 25, seed=1) for label in range(4)])
    copies = np.repeat(cloud(9, 1, seed=3), 30, axis=0)
    model = GoalPlus().fit(features, np.repeat(range(4), 60))
    model.discover(np.concatenate([known, copies]))
    assert model.n_stages_ == 0 and len(model.labels_) == 130
    model.discover(np.concatenate([known, cloud(9, 30, seed=3)]))
    assert model.n_stages_ == 1


def _open(path: Path) -> ImageSet:
    return open_given([str(path)], Reporter())
