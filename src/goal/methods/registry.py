"""Methods by name. A new method is one file beside this one and one line in the dict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goal.methods.base import Method
from goal.methods.dydm import DYDM
from goal.methods.frost import FRoST
from goal.methods.gm import GM
from goal.methods.goal import LITERAL, Goal
from goal.methods.goal_plus import GoalPlus
from goal.methods.happy import Happy
from goal.methods.kmeans import FrozenKMeans
from goal.methods.metagcd import MetaGCD
from goal.methods.promptccd import PromptCCD
from goal.methods.simgcd import SimGCD, SimGCDPlus
from goal.methods.vanilla_gcd import VanillaGCD
from goal.methods.vb_cgcd import VBCGCD


@dataclass(frozen=True)
class MethodSpec:
    """A method as listed: its class, one line for people, and preset settings."""

    method: type[Method]
    summary: str
    preset: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, MethodSpec] = {
    "goal-plus": MethodSpec(GoalPlus, "GOAL's stage 0, then discovery and memory without training"),
    "goal": MethodSpec(Goal, "GOAL with group-wise entropy, replay and distillation"),
    "goal-literal": MethodSpec(Goal, "GOAL as the paper's text has it, to the letter", LITERAL),
    "happy": MethodSpec(Happy, "Happy: group-wise entropy, prototype replay, distillation"),
    "metagcd": MethodSpec(MetaGCD, "MetaGCD: contrast with neighbours after meta-training"),
    "gm": MethodSpec(GM, "GM: grow a branch on novel images, merge it into a static one"),
    "frost": MethodSpec(FRoST, "FRoST: rank statistics, pseudo-labels, replayed features"),
    "simgcd": MethodSpec(SimGCD, "SimGCD: self-training alone; collapses on new classes"),
    "simgcd_plus": MethodSpec(SimGCDPlus, "SimGCD with distillation of logits (LwF)"),
    "vanilla_gcd": MethodSpec(VanillaGCD, "VanillaGCD: contrast, then k-means"),
    "vb_cgcd": MethodSpec(VBCGCD, "VB-CGCD: a Gaussian per class; no gradient after stage 0"),
    "dydm": MethodSpec(DYDM, "DYDM: Happy discovers, a ridge memory predicts"),
    "promptccd": MethodSpec(PromptCCD, "PromptCCD: a pool of mixture means as extra tokens"),
    "kmeans": MethodSpec(FrozenKMeans, "k-means on the frozen backbone: the floor"),
}
