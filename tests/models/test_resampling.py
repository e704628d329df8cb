"""The resize inside exported graphs is Pillow's."""

import numpy as np
import pytest
import torch
from PIL import Image

from goal.data.transforms import TransformSettings, clean
from goal.models.resampling import CentreCut, plain_cut


@pytest.mark.parametrize(("resize", "side"), [(256, 224), (18, 16), (8, 8)])
@pytest.mark.parametrize(
    ("height", "width"), [(256, 256), (300, 500), (511, 333), (17, 40), (3, 2), (1, 1), (90, 900)]
)
def test_every_pixel_is_pillows(height: int, width: int, resize: int, side: int) -> None:
    settings = TransformSettings(image_size=side, resize=resize)
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    harsh = np.where(noise > 127, 255, 0).astype(np.uint8)  # over- and undershoots are clipped
    found = CentreCut(plain_cut(settings.image_size, settings.resize))(
        torch.from_numpy(np.stack([noise, harsh]))
    ).numpy()
    expected = [clean(Image.fromarray(image), settings) for image in (noise, harsh)]
    np.testing.assert_array_equal(found, expected)


def test_tall_images_differ_by_rounding_at_most() -> None:
    settings = TransformSettings(image_size=32, resize=40)
    steps = np.linspace(0, 200, 400)[:, None] + np.linspace(0, 50, 60)
    image = np.repeat(steps.astype(np.uint8)[:, :, None], 3, axis=2)
    found = CentreCut(plain_cut(settings.image_size, settings.resize))(
        torch.from_numpy(image[None])
    )[0].numpy()
    expected = clean(Image.fromarray(image), settings)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
