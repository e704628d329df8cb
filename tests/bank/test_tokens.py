"""The tokens of a bank equal plain passes of the trunk, up to the rounding of their type."""

from pathlib import Path

import numpy as np
import pytest
import torch

from goal.backbone.tokens import Tokens
from goal.bank.shelf import decode, encode, row_dtype
from tests.bank.helpers import TOKENS, WIDTH, everything, make_images, open_bank, plain, same


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_clean_tokens_equal_a_plain_pass_in_the_order_of_ids(tmp_path: Path, dtype: str) -> None:
    images = make_images(6)
    images.pixels[3] = images.pixels[0]
    ids = np.array([4, 0, 3, 0, 5, 2])
    opened = open_bank(tmp_path, images, ids, dtype=dtype, views=1)
    expected = plain(images, ids)
    given = everything(opened.tokens)
    assert len(opened.tokens) == len(given) == 6
    assert opened.computed == 4 * 2, "equal images share their rows"
    assert torch.equal(given.cls, expected.cls)
    if dtype == "float32":
        assert torch.equal(given.normalised, expected.normalised)
    else:
        error = (given.normalised - expected.normalised).abs()
        assert error.max() > 0
        assert (error <= expected.normalised.abs() * 2.0**-11 + 2.0**-24).all()

    positions = torch.tensor([5, 1, 1, 0])
    chosen = opened.tokens.clean(positions)
    assert torch.equal(chosen.cls, expected.cls[positions])
    assert torch.equal(chosen.normalised, given.normalised[positions])


def test_int8_tokens_are_127ths_of_each_tokens_peak(tmp_path: Path) -> None:
    images = make_images(3)
    given = everything(open_bank(tmp_path, images, dtype="int8", views=1).tokens)
    expected = plain(images, range(3))
    assert torch.equal(given.cls, expected.cls)
    errors = []
    for image in range(3):
        for token in range(TOKENS):
            values = expected.normalised[image, token].tolist()
            step = max(abs(value) for value in values) / 127
            for value, read in zip(values, given.normalised[image, token].tolist(), strict=True):
                assert read == pytest.approx(step * round(value / step), abs=1e-5 * step)
                errors.append(abs(read - value) / step)
    assert 0.4 < max(errors) <= 0.5 + 1e-4, "rounded to the nearest, never further"


def test_int8_keeps_tokens_of_zeros_and_of_any_size() -> None:
    layout = row_dtype({"tokens": 3, "width": 4, "dtype": "int8"})
    normalised = torch.tensor([[[0.0] * 4, [1e-20, -1e-20, 0, 0], [3e20, -1e20, 0, 1]]])
    read = decode(encode(Tokens(normalised, torch.ones(1, 4)), layout)).normalised
    assert torch.equal(read[0, 0], torch.zeros(4))
    peaks = normalised.abs().amax(dim=2, keepdim=True)
    assert bool(((read - normalised).abs() <= peaks / 127 * 0.501).all())


def test_batches_of_images_change_nothing_but_rounding(tmp_path: Path) -> None:
    images = make_images(7)
    opened = open_bank(tmp_path, images, batch_size=3, dtype="float32")
    assert same(everything(opened.tokens), plain(images, range(7)), 1e-5)


def test_no_images_at_all(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(2), np.empty(0, dtype=np.int64))
    assert len(opened.tokens) == opened.computed == 0
    assert everything(opened.tokens).normalised.shape == (0, TOKENS, WIDTH)
