"""Methods by name. A new method is one file beside this one and one line in the dict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goal.methods.base import Method
from goal.methods.goal import LITERAL, Goal
from goal.methods.kmeans import FrozenKMeans


@dataclass(frozen=True)
class MethodSpec:
    """A method as listed: its class, one line for people, and preset settings."""

    method: type[Method]
    summary: str
    preset: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, MethodSpec] = {
    "goal": MethodSpec(Goal, "GOAL with group-wise entropy, replay and distillation"),
    "goal-literal": MethodSpec(Goal, "GOAL as the paper's text has it, to the letter", LITERAL),
    "kmeans": MethodSpec(FrozenKMeans, "k-means on the frozen backbone: the floor"),
}
