"""GOAL: continual generalized category discovery on a fixed simplex of class directions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goal.models.arrays import GoalPlus
    from goal.models.estimator import Goal

__all__ = ["Goal", "GoalPlus", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import an estimator when it is first asked for: importing the package stays light."""
    if name == "Goal":
        from goal.models.estimator import Goal

        return Goal
    if name == "GoalPlus":
        from goal.models.arrays import GoalPlus

        return GoalPlus
    raise AttributeError(f"module 'goal' has no attribute {name!r}")
