"""Published figures, for "paper" rows beside ours. Each says in which convention it was printed."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# Our names and the papers'. GOAL prints its own rows as base/novel and all others as seen/unseen.
PAPER_NAMES = {
    "vanilla_gcd": "VanillaGCD",
    "simgcd": "SimGCD",
    "simgcd_plus": "SimGCD+",
    "frost": "FRoST",
    "gm": "GM",
    "metagcd": "MetaGCD",
    "happy": "Happy",
    "goal": "GOAL",
}
NEWER_NAMES = {"vb_cgcd": "VB-CGCD", "promptccd": "PromptCCD", "dydm": "DYDM (All only)"}


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table; `old` and `new` are in the named convention."""

    convention: str
    stage0_all: float | None
    stages: list[dict[str, float]]
    average: dict[str, float]


@cache
def published() -> dict[str, Any]:
    """Every published figure, as shipped."""
    text = (files("goal.report") / "published.json").read_text()
    figures: dict[str, Any] = json.loads(text)
    return figures


def stage_row(dataset: str, method: str, stages: int) -> PublishedRow | None:
    """Return the published per-stage figures of a method, None if there are none."""
    convention = "base/novel" if method == "goal" else "seen/unseen"
    name = PAPER_NAMES.get(method, "")
    if stages == 10:
        row = published()["table3_ten_stages"].get(dataset, {}).get(name)
        each = [{"all": value} for value in row["stages_all"]] if row else []
    elif stages == 5:
        row = published()["table1_five_stages"].get(dataset, {}).get(name)
        each = row["stages"] if row else []
    else:
        return None
    if row is None:
        return _newer_row(dataset, method) if stages == 5 else None
    return PublishedRow(convention, row["stage0_all"], each, row["average"])


def _newer_row(dataset: str, method: str) -> PublishedRow | None:
    value = published()["newer_peers_five_stages"].get(NEWER_NAMES.get(method), {}).get(dataset)
    if value is None:
        return None
    keys = ("all", "old", "new")
    average = dict(zip(keys, value, strict=True)) if isinstance(value, list) else {"all": value}
    return PublishedRow("seen/unseen", None, [], average)


def forgetting_discovery(dataset: str, method: str) -> tuple[float, float] | None:
    """Return the M_f and M_d that GOAL's table prints for a method."""
    table = published()["table2_forgetting_discovery"]
    row = table.get(PAPER_NAMES.get(method, ""), {}).get(dataset)
    return (row["forgetting"], row["discovery"]) if row else None


def ablation(dataset: str, supervised: bool, unsupervised: bool) -> dict[str, float] | None:
    """Return All/Old/New (base/novel) of a row of the alignment ablation."""
    for row in published()["table4_alignment_ablation"]:
        if (row["supervised_alignment"], row["unsupervised_alignment"]) == (
            supervised,
            unsupervised,
        ):
            figures: dict[str, float] | None = row.get(dataset)
            return figures
    return None


def confident_share(dataset: str, alpha: float) -> float | None:
    """Return GOAL's All at a share of confident samples, where the text states it."""
    stated = published()["figure3_alpha_cifar100"]
    known = dataset == "cifar100" and alpha == stated["alpha"]
    return float(stated["all"]) if known else None
