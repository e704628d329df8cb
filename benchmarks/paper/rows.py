"""Rows of the papers' tables, and those that take the paper's text another way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.paper import references
from goal.methods.happy import ABLATION
from goal.methods.registry import METHODS
from goal.methods.simgcd import SelfDistillingSettings


@dataclass(frozen=True)
class Row:
    """One line of a table: a method, and what of its settings differs from the benchmark's.

    Attributes:
        name: What the line is called.
        method: The method.
        assignments: What differs.
        late: Whether it may wait until the other rows of all parts have been run.
    """

    name: str
    method: str
    assignments: tuple[str, ...] = ()
    late: bool = False

    @property
    def published(self) -> bool:
        """Whether the row is the method as such, which papers have a figure for."""
        return self.name == self.method

    def but(self, *assignments: str) -> "Row":
        """The same row with more that differs."""
        return replace(self, assignments=(*self.assignments, *assignments))


# -- every method ------------------------------------------------------------------------------

# What GOAL's head initialisation and weight of distillation give to Happy.
FAIR = Row(
    "happy with goal's head initialisation and distillation",
    "happy",
    ("method.head_init=novelty", "method.distillation_weight=10"),
)
COUNTED = Row("goal-plus with estimated K", "goal-plus", ("protocol.estimate_new=true",))
# The three forms of GOAL+'s alignment; the method's default is none.
FORMS = tuple(
    Row(f"goal-plus, {form} alignment", "goal-plus", (f"method.alignment={form}",))
    for form in ("analytic", "trained")
)
BOUND = Row("goal-plus, oracle (a bound)", "goal-plus-oracle", (references.CERTAIN,))
FIRST = Row("where goal-plus began", "goal-plus-first", references.FIRST, late=True)
FIRST_BOUND = Row(
    "where goal-plus began, oracle (a bound)",
    "goal-plus-first-oracle",
    references.FIRST,
    late=True,
)
_EARLY = ("goal-plus", "kmeans", "happy", "goal")


def methods(names: Sequence[str] = tuple(METHODS.shipped)) -> tuple[Row, ...]:
    """Methods as they are."""
    return tuple(Row(name, name, late=name not in _EARLY) for name in names)


# -- GOAL's own tables ---------------------------------------------------------------------------

# Whether supervised and unsupervised alignment are on in each row of Table 4.
ALIGNMENTS = {
    "neither": (False, False),
    "supervised": (True, False),
    "unsupervised": (False, True),
    "both": (True, True),
}
DISTILLED = "method.distillation_weight={}"
OFF = ("method.supervised_alignment=false", "method.unsupervised_alignment=false")
# All that Happy has and GOAL has otherwise, besides alignment and a projector that stays.
LIKE_HAPPY = (
    "method.base_form=happy",
    "method.head_init=farthest",
    f"method.head_length={SelfDistillingSettings.model_fields['head_length'].default}",
    DISTILLED.format(1),
)


def alignments(*assignments: str) -> tuple[Row, ...]:
    """Table 4: GOAL with each alignment on and off, the rest as given."""
    rows = []
    for name, switches in ALIGNMENTS.items():
        off = (text for text, on in zip(OFF, switches, strict=True) if not on)
        rows.append(Row(name, "goal", (*off, *assignments)))
    return tuple(rows)


def alphas(values: Sequence[float]) -> tuple[Row, ...]:
    """Figure 3: GOAL with shares of confident samples."""
    return tuple(
        Row(f"method.alpha={value}", "goal", (f"method.alpha={value}",)) for value in values
    )


def happy_ablation() -> tuple[Row, ...]:
    """Happy's own ablation."""
    return tuple(
        Row(
            name,
            "happy",
            tuple(f"method.{key}={value}" for key, value in changed.items()),
            late=True,
        )
        for name, changed in ABLATION.items()
    )


# -- other readings -------------------------------------------------------------------------------


def _on_and_off(name: str, *assignments: str) -> tuple[Row, Row]:
    """A reading of GOAL, and the same without its alignments."""
    row = Row(name, "goal", assignments)
    return row, replace(row.but(*OFF), name=f"{name} (no alignment)")


READINGS = (
    *_on_and_off(
        "one space, heads on vertices",
        "method.vertex_space=backbone",
        "method.heads=vertices",
        DISTILLED.format(1),
    ),
    *_on_and_off(
        "alignment as the only retention",
        "method.align_known=true",
        "method.replay_weight=0",
        DISTILLED.format(0),
    ),
    *_on_and_off(
        "cross-entropy over owned vertices, predicting with both",
        "method.confident_loss=cross_entropy",
        "method.predict_with=both",
        DISTILLED.format(1),
    ),
)


def lengths(epochs: Sequence[int]) -> tuple[Row, ...]:
    """How long stage 0 lasts, with alignment and without: collapse is the end of training."""
    return tuple(
        row
        for count in epochs
        for row in _on_and_off(
            f"{count} epochs of stage 0", f"training.base_epochs={count}", DISTILLED.format(1)
        )
    )


# The pretrained last bottleneck in place of the block that is added on top.
LAST_BLOCK = tuple(
    row.but("backbone.tail=last-block", "backbone.neck=null")
    for row in (
        *_on_and_off("goal, distillation 1", DISTILLED.format(1)),
        Row("happy, last block", "happy"),
        Row("goal-plus, last block", "goal-plus"),
    )
)
