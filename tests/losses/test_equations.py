"""Every part of GOAL's objective says which equation of the paper it is."""

import re

from goal.losses.alignment import dot_alignment
from goal.losses.classification import negative_mean_entropy, self_distillation
from goal.losses.contrastive import info_nce, sup_con
from goal.methods.goal import Goal
from goal.methods.parts.aligned_base import AlignedBase
from goal.numerics.simplex import simplex_etf

# Displayed equations, counted in the order of the paper's text.
EQUATIONS = {
    simplex_etf: {1, 2, 3},
    dot_alignment: {4, 12},
    info_nce: {5},
    sup_con: {6},
    AlignedBase.base_objective: {4, 7, 8, 9},
    self_distillation: {11},
    negative_mean_entropy: {11},
    Goal._incremental_objective: {13},
}


def test_the_objective_is_numbered_as_in_the_paper() -> None:
    for part, numbers in EQUATIONS.items():
        text = (part.__doc__ or "").replace("GCD, eq. 1", "")
        named = re.findall(r"eq\. (\d+(?:(?: of|,| and) \d+)*)", text)
        assert {int(n) for group in named for n in re.findall(r"\d+", group)} == numbers, part
