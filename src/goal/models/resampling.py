"""Pillow's resize, bicubic or bilinear, and a cut of the centre as tensor operations, bit for bit.

For exported graphs, which have no Pillow. It resamples along rows, rounds to whole pixel values,
then along columns, with weights in 22-bit fixed point; all of that is exact in double precision.
Recent versions of Pillow go the other way round when they shrink an image more than twice as tall
as wide: there a pixel may differ by what rounding between the passes leaves.

Shapes: B images, H x W their size, S the square's side.
"""

import torch
from torch import Tensor, nn

from goal.backbone.preprocessing import Preprocessing
from goal.common.errors import GoalError
from goal.data.transforms import Preparation

_ONE = 2.0**22  # the fixed point's unit
_A = -0.5  # Pillow's bicubic


class CentreCut(nn.Module):
    """What `goal.data.transforms.prepared` does, for a batch of images of one size."""

    def __init__(self, how: Preparation) -> None:
        super().__init__()
        if how.interpolation not in _KERNELS:
            raise GoalError(
                f"Cannot export a backbone whose images are resized by {how.interpolation}: only "
                f"{' and '.join(_KERNELS)} can be written as a graph."
            )
        self.resize = how.resize if how.centre_crop else how.image_size
        self.side = how.image_size
        self._crops = how.centre_crop
        self._kernel = _KERNELS[how.interpolation]

    def forward(self, pixels_BHW3: Tensor) -> Tensor:
        """Resize and cut out the centre: uint8, (B, 3, S, S)."""
        height, width = pixels_BHW3.shape[1:3]
        rows = torch.arange(height, device=pixels_BHW3.device).double()
        columns = torch.arange(width, device=pixels_BHW3.device).double()
        # Sizes as tensors: a graph must not depend on how they compare for the example.
        tall, wide = rows[-1] + 1, columns[-1] + 1
        least = torch.minimum(tall, wide)
        new_tall, new_wide = (
            torch.floor(self.resize * side / least) if self._crops else self.side + 0 * side
            for side in (tall, wide)
        )
        down_SH = self._weights(rows, tall, new_tall)
        across_SW = self._weights(columns, wide, new_wide)
        values = pixels_BHW3.double().permute(0, 3, 1, 2)
        values = _whole(values @ across_SW.T)
        return _whole(down_SH @ values).to(torch.uint8)

    def _weights(self, positions_P: Tensor, size: Tensor, resized: Tensor) -> Tensor:
        """Weights of an axis's pixels for each pixel of the square, (S, P), in fixed point."""
        first = torch.round((resized - self.side) / 2)
        scale = size / resized
        stretch = scale.clamp_min(1)
        centres = (first + torch.arange(self.side, device=size.device) + 0.5) * scale
        away = ((positions_P - centres[:, None] + 0.5) * (1 / stretch)).abs()
        weights = self._kernel(away)
        weights = weights / weights.sum(dim=1, keepdim=True) * _ONE
        return torch.where(weights < 0, torch.ceil(weights - 0.5), torch.floor(weights + 0.5))


def _bicubic(away: Tensor) -> Tensor:
    near = ((_A + 2) * away - (_A + 3)) * away * away + 1
    far = (((away - 5) * away + 8) * away - 4) * _A
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


def _bilinear(away: Tensor) -> Tensor:
    return (1 - away).clamp_min(0)


_KERNELS = {"bicubic": _bicubic, "bilinear": _bilinear}


def plain_cut(image_size: int, resize: int) -> Preprocessing:
    """What `goal.data.transforms.clean` does, as a preparation; pixel statistics are elsewhere."""
    nothing = (0.0, 0.0, 0.0)
    return Preprocessing(image_size, resize, True, "bicubic", nothing, (1.0, 1.0, 1.0))


def _whole(fixed: Tensor) -> Tensor:
    """From fixed point to whole pixel values."""
    return torch.floor((fixed + _ONE / 2) / _ONE).clamp(0, 255)
