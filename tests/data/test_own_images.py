"""Images as people hand them over."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.own_images import gather
from tests.data.helpers import write_image

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (3, 5, 4, 3), np.uint8)


def pixels(images: Any) -> Any:
    given = gather(images, Reporter())
    return np.stack([np.asarray(given.images.image(index)) for index in range(len(given))])


def test_the_same_pixels_in_every_form() -> None:
    forms = {
        "array": COLOUR,
        "floats": COLOUR / 255,
        "list": list(COLOUR),
        "pillow": [Image.fromarray(image) for image in COLOUR],
        "tensor": torch.from_numpy(COLOUR).permute(0, 3, 1, 2),
        "tensors": list(torch.from_numpy(COLOUR / 255).permute(0, 3, 1, 2)),
        "integers": COLOUR.astype(np.int64),
        "sixteen bits": COLOUR.astype(np.uint16) * 257,
    }
    for name, form in forms.items():
        np.testing.assert_array_equal(pixels(form), COLOUR, err_msg=name)
    digests = {gather(form, Reporter()).images.digest(1) for form in (COLOUR, forms["tensor"])}
    assert len(digests) == 1


def test_grey_images_with_and_without_a_channel() -> None:
    grey = COLOUR[..., 0]
    expected = np.repeat(grey[..., None], 3, axis=-1)
    for form in (grey, grey[..., None], torch.from_numpy(grey), torch.from_numpy(grey)[:, None]):
        np.testing.assert_array_equal(pixels(form), expected)


def test_paths_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    paths = [
        write_image(tmp_path / "a.png"),
        tmp_path / "none.png",
        write_image(tmp_path / "b.png"),
    ]
    given = gather([str(path) for path in paths], Reporter())
    assert given.kept == [0, 2] and len(given) == 2
    assert [name for name, _ in given.skipped] == [str(paths[1])]
    less = given.without({0: "went bad"})
    assert less.names == [str(paths[2])] and less.kept == [2]
    assert less.skipped[-1] == (str(paths[0]), "went bad")
    assert less.images.digest(0) == given.images.digest(1)


def test_a_key_follows_the_images_and_the_facts() -> None:
    given, other = gather(COLOUR, Reporter()), gather(COLOUR[::-1], Reporter())
    assert given.key(1) == gather(COLOUR.copy(), Reporter()).key(1)
    assert len({given.key(1), given.key(2), other.key(1)}) == 3


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ([], "No images"),
        ("a.png", "list of images"),
        (np.zeros((4, 4)), r"\(N, H, W\)"),
        (np.full((1, 4, 4), 2.0), "outside 0 to 1"),
        (np.full((1, 4, 4), np.nan), "outside 0 to 1"),
        (np.full((1, 4, 4), 256), "beyond 0 to 255"),
        (np.zeros((1, 4, 4, 7), np.uint8), r"shape \(4, 4, 7\)"),
        (np.zeros((1, 0, 4), np.uint8), "no pixels"),
        (7, "give a list"),
    ],
)
def test_mistakes_are_explained(images: Any, text: str) -> None:
    with pytest.raises(GoalError, match=text):
        gather(images, Reporter())
