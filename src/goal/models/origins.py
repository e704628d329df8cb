"""Where a model's features come from, and what room it has for classes."""

from typing import Any

from goal.common.errors import GoalError
from goal.data.own_images import ImageSet
from goal.features.bank import FeatureBank
from goal.features.given import known_features
from goal.features.origin import Origin
from goal.learning.learner import Learner
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


def vertex_room(learner: Learner) -> dict[str, Any]:
    """Number of vertices and of free ones; nothing for methods without."""
    if learner.ledger is None:
        return {}
    return {"capacity": len(learner.ledger.owners), "free": learner.free}


def origin(learner: Learner) -> Origin | None:
    """Where a learner's features come from, if it learns from features."""
    return learner.bank.origin if isinstance(learner.bank, FeatureBank) else None
