"""GOAL: continual generalized category discovery on a fixed simplex of class directions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goal.models.estimator import Goal

__all__ = ["Goal", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import `Goal` when it is first asked for: importing the package stays light."""
    if name == "Goal":
        from goal.models.estimator import Goal

        return Goal
    raise AttributeError(f"module 'goal' has no attribute {name!r}")
