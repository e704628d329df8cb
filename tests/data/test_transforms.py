"""Views against a slow version that picks every pixel by itself."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from goal.backbone.preprocessing import Preprocessing
from goal.common.errors import GoalError
from goal.data.transforms import (
    MOST_RESIZED,
    TransformSettings,
    augmented,
    clean,
    describe,
    prepared,
    resized,
)

SMALL = TransformSettings(image_size=6, resize=8)


def picture(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def resized_slowly(image: Image.Image, shorter: int) -> Image.Image:
    if image.width <= image.height:
        size = (shorter, shorter * image.height // image.width)
    else:
        size = (shorter * image.width // image.height, shorter)
    return image.resize(size, Image.Resampling.BICUBIC)


def cut_slowly(image: Image.Image, left: int, top: int, size: int) -> npt.NDArray[np.uint8]:
    out = np.empty((3, size, size), np.uint8)
    for y in range(size):
        for x in range(size):
            pixel = image.getpixel((left + x, top + y))
            assert isinstance(pixel, tuple)
            out[:, y, x] = pixel
    return out


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
def test_clean_is_the_centre_of_the_resized_image(
    width: int, height: int, size: int, margin: int
) -> None:
    image = picture(width, height)
    found = clean(image, TransformSettings(image_size=size, resize=size + margin))
    big = resized_slowly(image, size + margin)
    assert found.shape == (3, size, size)
    assert found.dtype == np.uint8
    centres = [  # an odd margin has two middles
        cut_slowly(big, left, top, size)
        for left in {(big.width - size) // 2, (big.width - size + 1) // 2}
        for top in {(big.height - size) // 2, (big.height - size + 1) // 2}
    ]
    assert any(np.array_equal(found, centre) for centre in centres)


def test_nothing_to_resize_or_cut_keeps_the_pixels() -> None:
    image = picture(8, 8)
    found = clean(image, TransformSettings(image_size=8, resize=8))
    np.testing.assert_array_equal(found, np.asarray(image).transpose(2, 0, 1))
    assert found.flags.c_contiguous


@pytest.mark.parametrize("flip", [True, False])
def test_augmented_views_are_all_the_squares_and_their_mirrors(flip: bool) -> None:
    image = picture(10, 8)
    settings = TransformSettings(image_size=6, resize=8, flip=flip)
    squares = {
        (left, top): cut_slowly(image, left, top, 6) for left in range(5) for top in range(3)
    }
    possible = {square.tobytes() for square in squares.values()}
    if flip:
        possible |= {square[:, :, ::-1].tobytes() for square in squares.values()}
    rng = np.random.default_rng(0)
    views = [augmented(image, settings, rng) for _ in range(600)]
    assert {view.tobytes() for view in views} == possible
    assert all(view.shape == (3, 6, 6) and view.flags.c_contiguous for view in views)


def test_half_of_the_views_are_mirrored() -> None:
    image = picture(8, 8)
    settings = TransformSettings(image_size=8, resize=8)
    straight = clean(image, settings)
    rng = np.random.default_rng(1)
    same = [np.array_equal(augmented(image, settings, rng), straight) for _ in range(1000)]
    assert 400 < sum(same) < 600


def test_augmented_repeats_with_its_generator_and_resizes_like_clean() -> None:
    image = picture(30, 17)
    first, second = (
        [augmented(image, SMALL, rng) for _ in range(5)]
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    np.testing.assert_array_equal(first, second)
    big = resized_slowly(image, 8)
    squares = {
        cut_slowly(big, left, top, 6).tobytes() for left in range(big.width - 5) for top in range(3)
    }
    plain = TransformSettings(image_size=6, resize=8, flip=False)
    rng = np.random.default_rng(4)
    assert all(augmented(image, plain, rng).tobytes() in squares for _ in range(20))


def test_the_crop_must_fit() -> None:
    with pytest.raises(GoalError, match=r"image_size \(300\) must not exceed resize \(256\)"):
        TransformSettings.parse({"image_size": 300})
    assert TransformSettings(image_size=256).resize == 256


@pytest.mark.parametrize("values", [{"image_size": 0}, {"resize": -1}, {"image_size": 2.5}])
def test_sizes_are_positive_integers(values: dict[str, float]) -> None:
    with pytest.raises(GoalError, match=next(iter(values))):
        TransformSettings.parse(values)


def test_describe_is_stable_and_tells_settings_apart() -> None:
    """The text is part of cache keys on people's disks: a change here empties every cache."""
    assert describe(TransformSettings()) == "bicubic-resize=256 crop=224 flip=yes"
    others = [
        TransformSettings(),
        TransformSettings(image_size=200),
        TransformSettings(resize=300),
        TransformSettings(flip=False),
    ]
    assert len({describe(settings) for settings in others}) == 4


@pytest.mark.parametrize("shape", [(1, 1_000_000), (1_000_000, 1), (2, 50_000)])
def test_an_endless_image_is_cut_before_it_is_resized(shape: tuple[int, int]) -> None:
    """1 x 1,000,000 would become 256 x 256,000,000; the middle is what a crop sees anyway."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (shape[1], shape[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    whole = resized(image, TransformSettings())
    assert min(whole.size) == 256 and whole.width * whole.height <= 1.01 * MOST_RESIZED
    some = [(side // 2 - 20, side // 2 + 20) if side > 40 else (0, side) for side in shape]
    middle = image.crop((some[0][0], some[1][0], some[0][1], some[1][1]))
    np.testing.assert_array_equal(
        clean(image, TransformSettings()), clean(middle, TransformSettings())
    )


def test_the_whole_image_becomes_a_square_where_the_network_wants_it() -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (10, 20, 3), dtype=np.uint8))
    how = Preprocessing(8, 8, False, "bilinear", (0.5,) * 3, (0.5,) * 3)
    truth = np.asarray(image.resize((8, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(prepared(image, how), truth)
    cut = replace(how, centre_crop=True, interpolation="bicubic", resize=9)
    expected = clean(image, TransformSettings(image_size=8, resize=9))
    np.testing.assert_array_equal(prepared(image, cut), expected)
