"""Models of features that came as such: there is no backbone to load."""

from goal.common.errors import GoalError
from goal.data.own_images import ImageSet
from goal.features.given import known_features
from goal.features.origin import Origin
from goal.settings.settings import Settings


def on_features(settings: Settings, given: ImageSet) -> tuple[Settings, Origin | None]:
    """Settings for features that came as such, and their origin; others stay as they are."""
    behind = known_features(given.images)
    if behind is None:
        return settings, None
    if not settings.method.frozen:
        raise GoalError(
            f"The method {settings.method.name} trains a part of the backbone, so it needs images. "
            "Features can be taken by goal-plus."
        )
    backbone = settings.backbone.model_copy(update={"name": behind.origin.backbone})
    return settings.model_copy(update={"backbone": backbone}), behind.origin
