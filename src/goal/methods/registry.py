"""Methods by name. A new method is one file beside this one and one line in the table.

A package of one's own adds methods by entry points of the group ``goal.methods``, each of which
names a `MethodSpec`; see docs/plugins.md. Nothing here imports torch until a class is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from goal.common.errors import GoalError
from goal.common.plugins import Registry

if TYPE_CHECKING:
    from goal.methods.base import Method


@dataclass(frozen=True)
class MethodSpec:
    """A method as listed: where its class is, one line for people, and preset settings.

    Attributes:
        where: The class as text, ``"package.module:Class"``, which is imported when it is first
            needed; or the class itself.
        summary: One line for `goal list methods`.
        preset: Settings laid under the user's.
    """

    where: "str | type[Method]"
    summary: str
    preset: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.where, str) and not all(self.where.partition(":")):
            raise TypeError(f"write the class as 'package.module:Class', not {self.where!r}")
        if not isinstance(self.where, str | type):
            raise TypeError(f"a method is a class, not {self.where!r}")
        if not isinstance(self.summary, str) or not isinstance(self.preset, Mapping):
            raise TypeError("a summary is a text, and a preset is a mapping")

    @cached_property
    def method(self) -> "type[Method]":
        """The class, imported when first asked for."""
        from goal.methods.base import Method

        found = _imported(self.where) if isinstance(self.where, str) else self.where
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise GoalError(f"{self.where} is no subclass of goal.methods.base.Method.")
        return found


def _imported(where: str) -> object:
    module, _, name = where.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # whatever the module of a plug-in does
        raise GoalError(
            f"Cannot import the method {where} ({type(error).__name__}: {error})."
        ) from error


# GOAL to the letter: without what the preset `goal` adds to the paper's text.
_LITERAL = {
    "head_init": "farthest",
    "confidence": "global",
    "entropy_form": "global",
    "replay_weight": 0.0,
    "distillation_weight": 0.0,
}


def _own(where: str, summary: str, preset: Mapping[str, Any] | None = None) -> MethodSpec:
    return MethodSpec(f"goal.methods.{where}", summary, preset or {})


METHODS: Registry[MethodSpec] = Registry(
    "goal.methods",
    MethodSpec,
    {
        "goal-plus": _own(
            "goal_plus:GoalPlus", "A frozen feature and a memory that cannot forget; no training"
        ),
        "goal": _own("goal:Goal", "GOAL with group-wise entropy, replay and distillation"),
        "goal-literal": _own(
            "goal:Goal", "GOAL as the paper's text has it, to the letter", _LITERAL
        ),
        "happy": _own("happy:Happy", "Happy: group-wise entropy, prototype replay, distillation"),
        "metagcd": _own("metagcd:MetaGCD", "MetaGCD: contrast with neighbours after meta-training"),
        "gm": _own("gm:GM", "GM: grow a branch on novel images, merge it into a static one"),
        "frost": _own("frost:FRoST", "FRoST: rank statistics, pseudo-labels, replayed features"),
        "simgcd": _own("simgcd:SimGCD", "SimGCD: self-training alone; collapses on new classes"),
        "simgcd_plus": _own("simgcd:SimGCDPlus", "SimGCD with distillation of logits (LwF)"),
        "vanilla_gcd": _own("vanilla_gcd:VanillaGCD", "VanillaGCD: contrast, then k-means"),
        "vb_cgcd": _own(
            "vb_cgcd:VBCGCD", "VB-CGCD: a Gaussian per class; no gradient after stage 0"
        ),
        "dydm": _own("dydm:DYDM", "DYDM: Happy discovers, a ridge memory predicts"),
        "promptccd": _own(
            "promptccd:PromptCCD", "PromptCCD: a pool of mixture means as extra tokens"
        ),
        "freeze_and_cluster": _own(
            "freeze_and_cluster:FreezeAndCluster",
            "Freeze and Cluster: k-means names images, only the classifier learns",
        ),
        "kmeans": _own("kmeans:FrozenKMeans", "k-means on the frozen backbone: the floor"),
    },
)
