"""Stages with planted classes, made of tokens alone: no images, no trunk, no files."""

import torch
from torch import Tensor

from goal.backbone.tail import ClsTail, normalise, zero_started_tail
from goal.backbone.tokens import Tokens
from goal.methods.base import LabelledStage, Method, Stage
from goal.methods.registry import METHODS

WIDTH = 12
CLASSES = 6
SMALL = {"projector_hidden": 16, "projector_out": 8}  # for methods that have a projector


class PlantedTokens:
    """Two views and a clean one of points scattered around one direction per class."""

    def __init__(self, classes: Tensor, seed: int = 0, noise: float = 0.15) -> None:
        """Scatter one image for each entry of `classes`, so far from its class's direction."""
        rng = torch.Generator().manual_seed(99)
        centres = torch.nn.functional.normalize(torch.randn(CLASSES, WIDTH, generator=rng), dim=1)
        rng = torch.Generator().manual_seed(seed)
        shape = (3, len(classes), 4, WIDTH)  # view, image, token, width
        hidden = centres[classes][None, :, None] + noise * torch.randn(shape, generator=rng)
        self.classes = classes
        self.views = [normalise(view, 1e-6) for view in hidden]

    def __len__(self) -> int:
        return len(self.classes)

    def clean(self, positions: Tensor) -> Tokens:
        """Tokens of the clean view."""
        return self._view(0, positions)

    def pair(
        self, positions: Tensor, rng: torch.Generator, mine: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """Tokens of two views."""
        positions = positions if mine is None else positions[mine]
        first, second = (1, 2) if torch.rand((), generator=rng) < 0.5 else (2, 1)
        return self._view(first, positions), self._view(second, positions)

    def _view(self, view: int, positions: Tensor) -> Tokens:
        tokens = self.views[view]
        return Tokens(tokens.normalised[positions], tokens.cls[positions])


def planted_classes(counts: dict[int, int], seed: int = 0) -> Tensor:
    """As many images of each class as asked for, shuffled."""
    listed = torch.cat([torch.full((count,), label) for label, count in counts.items()])
    return listed[torch.randperm(len(listed), generator=torch.Generator().manual_seed(seed))]


def base_stage(epochs: int = 3) -> LabelledStage:
    """Stage 0: three classes of twelve images."""
    classes = planted_classes({0: 12, 1: 12, 2: 12})
    return LabelledStage(0, 0, 3, epochs, PlantedTokens(classes), classes)


def next_stage(
    counts: dict[int, int] | None = None, num_known: int = 3, num_new: int = 2, epochs: int = 3
) -> Stage:
    """A later stage: as many images of each class as asked for, or a few old and two new ones."""
    if counts is None:
        counts = {0: 4, 1: 4, 2: 4, 3: 12, 4: 12}
    tokens = PlantedTokens(planted_classes(counts), seed=1)
    return Stage(1 + (num_known > 3), num_known, num_new, epochs, tokens)


def small_tail() -> ClsTail:
    """A tail for planted tokens."""
    rng = torch.Generator().manual_seed(5)
    tail = zero_started_tail(WIDTH, inner=8, mlp_width=16, heads=2, rng=rng)
    tail.final_norm = torch.nn.LayerNorm(WIDTH).requires_grad_(False)
    return tail


def tail_of(method: Method) -> ClsTail:
    """The tail of a small method."""
    assert isinstance(method.tail, ClsTail)
    return method.tail


def small_method(name: str, seed: int = 0, **overrides: object) -> Method:
    """A method by name, built small for planted tokens."""
    spec = METHODS[name]
    fields = spec.method.Settings.model_fields
    small = {**SMALL, "memory_width": 40}
    sizes = {key: value for key, value in small.items() if key in fields}
    settings = spec.method.Settings.parse({"name": name, **spec.preset, **sizes, **overrides})
    rng = torch.Generator().manual_seed(seed)
    return spec.method.build(settings, small_tail(), CLASSES, rng).eval()
