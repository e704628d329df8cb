"""A bank computes only what is missing, and keeps what is done when an image cannot be read."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import goal.bank.bank
from goal.common.errors import GoalError
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings
from tests.bank.helpers import (
    CLEAN,
    agrees,
    everything,
    generator,
    make_images,
    make_trunk,
    open_bank,
    plain,
    same,
)


def test_an_image_that_cannot_be_read_ends_the_build_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(4)
    monkeypatch.setattr(goal.bank.bank, "_CHUNK_BYTES", 0)

    def broken(index: int) -> Any:
        if index == 2:
            raise GoalError("Cannot read the image two")
        return ArrayImages.image(images, index)

    monkeypatch.setattr(images, "image", broken)
    with pytest.raises(GoalError, match="image two"):
        open_bank(tmp_path, images, views=1)
    monkeypatch.undo()
    again = open_bank(tmp_path, images, views=1)
    assert again.computed in (2 * 2, 2 * 2 + 2), "two images are left, at most one was lost"
    assert agrees(again, images)


Step = tuple[list[int], bool, int]  # ids, augmented views?, how many


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), min_size=1, max_size=8), st.booleans(), st.integers(1, 3)
        ),
        min_size=1,
        max_size=4,
    )
)
@example(steps=[([0, 1, 2, 3], True, 2), ([0, 1, 2, 3], True, 2)])  # the same again
@example(steps=[([0, 1, 2, 3], True, 2), ([3, 1], True, 2)])  # a subset
@example(steps=[([0, 1], True, 2), ([3, 0, 2, 1], True, 2)])  # a superset
@example(steps=[([0, 1, 2], True, 1), ([0, 1, 2], True, 3)])  # more views
@example(steps=[([0, 1, 2], False, 1), ([2, 4], True, 2)])  # clean for some, views for others
def test_only_what_is_missing_is_computed(steps: list[Step], tmp_path: Path) -> None:
    images = make_images(6)
    images.pixels[5] = images.pixels[4]
    known: set[tuple[int | str, bytes]] = set()
    with TemporaryDirectory(dir=tmp_path) as folder:
        for ids, augmented_views, count in steps:
            views = [CLEAN, *range(count)] if augmented_views else [CLEAN]
            wanted = {(view, images.digest(index)) for view in views for index in ids}
            opened = open_bank(
                Path(folder),
                images,
                np.array(ids),
                views=count,
                augmented_views=augmented_views,
                dtype="float32",
            )
            assert opened.computed == len(wanted - known)
            assert same(everything(opened.tokens), plain(images, ids))
            assert not opened.reporter.of("warn")
            known |= wanted


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "weights": lambda: {"trunk": make_trunk(seed=1)},
    "resize": lambda: {"transform": TransformSettings(image_size=8, resize=25)},
    "flip": lambda: {"transform": TransformSettings(image_size=8, resize=24, flip=False)},
    "dtype": lambda: {"dtype": "float16"},
    "view_seed": lambda: {"view_seed": 1},
}


@pytest.mark.parametrize("changed", CHANGES)
def test_other_circumstances_have_other_shelves(changed: str, tmp_path: Path) -> None:
    images, change = make_images(3), CHANGES[changed]()
    first = open_bank(tmp_path, images, dtype="float32")
    other = open_bank(tmp_path, images, **{"dtype": "float32", **change})
    expected = 3 * 2 if changed == "view_seed" else 3 * 3  # the clean view has no seed
    assert other.computed == expected
    if changed == "weights":
        assert same(everything(other.tokens), plain(images, range(3), trunk=change["trunk"]))
    if changed == "view_seed":
        one = open_bank(tmp_path, images, views=1, view_seed=1, dtype="float32")
        view, _ = one.tokens.pair(torch.arange(3), generator(0))
        assert same(view, plain(images, range(3), 0, view_seed=1))
    again = open_bank(tmp_path, images, dtype="float32")
    assert again.computed == 0
    assert same(everything(again.tokens), everything(first.tokens))
