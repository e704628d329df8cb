"""What the entry points name. It imports no torch, so that `goal list` stays fast."""

from goal.data.images import DatasetSpec
from goal.methods.registry import MethodSpec
from goal_nearest.stripes import load

NEAREST_MEAN = MethodSpec(
    "goal_nearest.method:NearestMean",
    "Nearest class mean of the frozen feature; new means by k-means",
)

STRIPES = DatasetSpec(
    summary="Stripes in six directions, 16 x 16 pixels; made on the spot",
    load=load,
    defaults={
        "protocol": {"base_classes": 2, "stages": 2},
        "transform": {"image_size": 16, "resize": 18, "flip": False},
        "backbone": {"name": "digits-vit"},
    },
)
