"""A real experiment on digits that takes a second or two."""

from typing import Any

from goal.settings.plain import parse_assignments
from goal.settings.recipes import read_recipe
from goal.settings.settings import Settings, compose

SMALL = (
    "protocol.train_per_class=30",
    "protocol.test_per_class=10",
    "training.base_epochs=4",
    "training.stage_epochs=3",
    "method.warmup_epochs=0",
    "method.refresh_every=2",
    "bank.views=2",
)


def small_settings(*assignments: str) -> Settings:
    return compose(read_recipe("digits/goal"), parse_assignments(SMALL), parse(assignments))


def parse(assignments: tuple[str, ...]) -> dict[str, Any]:
    return parse_assignments(assignments)


def as_flags(*assignments: str) -> list[str]:
    return [word for text in (*SMALL, *assignments) for word in ("--set", text)]
