"""Readers hand out pairs of banked or fresh views, drawn by their generator alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from goal.backbone.tokens import Tokens
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings
from tests.bank.helpers import (
    everything,
    generator,
    make_images,
    one_shared_pass,
    open_bank,
    plain,
    same,
)


def test_a_part_of_a_pair_is_that_part(tmp_path: Path) -> None:
    positions, mine = torch.tensor([4, 0, 2, 1, 3]), torch.tensor([3, 4, 4])
    for views in (1, 3, "fresh"):
        source = open_bank(tmp_path / str(views), make_images(5), views=views).tokens
        whole, rng = generator(0), generator(0)
        both = source.pair(positions, whole)
        part = source.pair(positions, rng, mine)
        for all_, some in zip(both, part, strict=True):
            assert same(some, Tokens(all_.normalised[mine], all_.cls[mine]), 1e-6)
        assert torch.equal(whole.get_state(), rng.get_state())


def test_pairs_are_two_different_views_as_documented(tmp_path: Path) -> None:
    images, views = make_images(4), 3
    opened = open_bank(tmp_path, images, views=views, view_seed=5, dtype="float32")
    expected = [plain(images, range(4), view, view_seed=5) for view in range(views)]
    cleaned = plain(images, range(4))
    rng, drawn = generator(0), set()
    for _ in range(30):
        pair = opened.tokens.pair(torch.arange(4), rng)
        for image in range(4):
            hits = [
                [
                    view
                    for view in range(views)
                    if torch.equal(tokens.normalised[image], expected[view].normalised[image])
                    and torch.equal(tokens.cls[image], expected[view].cls[image])
                ]
                for tokens in pair
            ]
            assert [len(found) for found in hits] == [1, 1], "one of the views, and only one"
            assert not any(torch.equal(tokens.cls[image], cleaned.cls[image]) for tokens in pair)
            drawn.add((image, hits[0][0], hits[1][0]))
    assert drawn == {(i, a, b) for i in range(4) for a in range(3) for b in range(3) if a != b}


def test_pairs_follow_their_generator_alone(tmp_path: Path) -> None:
    source = open_bank(tmp_path, make_images(5), views=4).tokens
    positions = torch.tensor([3, 0, 0, 4, 2, 1])
    before = torch.random.get_rng_state()
    first = source.pair(positions, generator(1))
    again = source.pair(positions, generator(1))
    other = source.pair(positions, generator(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not all(same(a, b) for a, b in zip(first, other, strict=True))


def test_one_view_is_paired_with_the_clean_one(tmp_path: Path) -> None:
    images = make_images(3)
    opened = open_bank(tmp_path, images, views=1, dtype="float32")
    first, second = opened.tokens.pair(torch.tensor([2, 0]), generator(0))
    assert same(first, plain(images, [2, 0], 0))
    assert same(second, plain(images, [2, 0]))


def test_pairs_need_augmented_views(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(2), augmented_views=False)
    assert opened.computed == 2
    with pytest.raises(ValueError, match="without augmented views"):
        opened.tokens.pair(torch.arange(2), generator(0))


FEW_CROPS = TransformSettings(image_size=8, resize=9)


def every_crop(images: ArrayImages, index: int) -> Iterator[Tokens]:
    """Tokens of all crops and their mirror images."""
    resized = images.image(index).resize((10, 9), resample=3)
    pixels = np.asarray(resized).transpose(2, 0, 1)
    for top in range(2):
        for left in range(3):
            crop = pixels[:, top : top + 8, left : left + 8]
            for mirrored in (crop, crop[:, :, ::-1]):
                yield one_shared_pass(mirrored.tobytes())


def test_fresh_tokens_are_those_of_new_random_crops(tmp_path: Path) -> None:
    images, ids = make_images(5), np.array([4, 0, 2])
    source = open_bank(tmp_path, images, ids, views="fresh", transform=FEW_CROPS).tokens
    positions = torch.tensor([2, 0, 2])
    drawn = set()
    rng = generator(0)
    for _ in range(20):
        for tokens in source.pair(positions, rng):
            assert len(tokens) == 3
            for row, index in enumerate((2, 4, 2)):
                hits = [
                    number
                    for number, candidate in enumerate(every_crop(images, index))
                    if torch.allclose(tokens.normalised[row], candidate.normalised[0], atol=1e-5)
                    and torch.allclose(tokens.cls[row], candidate.cls[0], atol=1e-5)
                ]
                assert len(hits) == 1
                drawn.add(hits[0])
    assert drawn == set(range(12))


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_fresh_tokens_leave_no_trace(batch_size: int, tmp_path: Path) -> None:
    images, ids = make_images(5), np.array([4, 0, 0, 2])
    opened = open_bank(tmp_path / "cache", images, ids, views="fresh", batch_size=batch_size)
    source, positions = opened.tokens, torch.arange(4)
    assert len(source) == 4 and opened.computed == 0
    assert same(everything(source), plain(images, ids), 1e-5)
    rng = generator(1)
    first, second = source.pair(positions, rng), source.pair(positions, rng)
    again = source.pair(positions, generator(1))
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not any(same(a, b) for a, b in zip(first, second, strict=True))
    assert not same(*first)
    assert not (tmp_path / "cache").exists()
