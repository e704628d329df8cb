"""Colours, dashes and markers: one place for the page and the figures, so a method looks the same.

Hues follow Okabe and Ito, safe for colour-blind readers; each has a tone for light and one for
dark paper. Where hues repeat, dashes and markers tell methods apart.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

Hue = Literal["blue", "indigo", "sky", "orange", "green", "pink", "amber", "grey"]
HUES: dict[Hue, tuple[str, str]] = {
    "blue": ("#0072b2", "#5ab4ee"),
    "indigo": ("#5244b5", "#a79bf5"),
    "sky": ("#3f9fd4", "#9ad8fb"),
    "orange": ("#d55e00", "#ff9250"),
    "green": ("#00875f", "#3fcf9f"),
    "pink": ("#b5477f", "#ee9cc8"),
    "amber": ("#b98300", "#f2bd45"),
    "grey": ("#6b7078", "#a8adb8"),
}
DASHES = ("", "6 4", "2 3", "9 3 2 3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Style:
    """How a method is drawn: a tone for light and dark paper, an SVG dash pattern, a marker."""

    light: str
    dark: str
    dash: str
    marker: str


_KNOWN: dict[str, tuple[Hue, int, int]] = {  # hue, dash, marker
    "goal": ("blue", 0, 0),
    "goal-plus": ("indigo", 0, 7),
    "goal-literal": ("sky", 1, 0),
    "happy": ("orange", 0, 1),
    "vb_cgcd": ("green", 0, 2),
    "dydm": ("pink", 0, 3),
    "promptccd": ("amber", 0, 4),
    "metagcd": ("green", 1, 4),
    "gm": ("pink", 1, 5),
    "frost": ("amber", 1, 6),
    "simgcd": ("orange", 1, 3),
    "simgcd_plus": ("orange", 2, 2),
    "vanilla_gcd": ("grey", 1, 1),
    "kmeans": ("grey", 0, 6),
}


def method_style(name: str, variant: int = 0) -> Style:
    """Return a method's style; one not listed here gets a lasting one from its name.

    Args:
        name: The method's name.
        variant: Number of the variant among runs of this method, which changes dash and marker.
    """
    if name in _KNOWN:
        hue, dash, marker = _KNOWN[name]
    else:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
        hue = list(HUES)[number % len(HUES)]
        dash, marker = 3, number // len(HUES) % len(MARKERS)
    light, dark = HUES[hue]
    dashes = DASHES[(dash + variant) % len(DASHES)]
    return Style(light, dark, dashes, MARKERS[(marker + variant) % len(MARKERS)])
