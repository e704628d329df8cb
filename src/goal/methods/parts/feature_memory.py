"""What GOAL+ knows of classes, on frozen features: where to look, how to decide, what to remember.

Features are whitened by what stage 0 saw within its classes, twice: in few directions, in which
new classes are looked for (`discovery`), and in many, in which a class is a Gaussian with a mean
and a little of its own shape (`shape_memory`). What has been learned never changes, so base
classes lose only to new neighbours.

How strange an image is, is told by the density of its likeliest class, beside those of labelled
images that were held out: every labelled image is looked at by a memory that has not seen it.

Several features of the same images may decide together, each in a whitened space of its own; new
classes are looked for in the first.

Shapes: N images, K known classes, M new classes, d directions.
"""

import math
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from goal.common.section import Section
from goal.methods.parts.discovery import Found, discover, wariness
from goal.methods.parts.shape_memory import ShapeMemory
from goal.methods.parts.strangeness import folds, share_above
from goal.methods.parts.whitening import Whitening
from goal.numerics.copies import usual_gap

Features = Sequence[Tensor]
"""Unit-length features (N, D) of the same images, one or more."""


CLASS_ROWS = ("known", "wary", "shapes.means", "shapes.directions", "shapes.spreads")
"""Tensors of a memory that have a row for each class."""


class FeatureMemorySettings(Section):
    """Settings of the memory.

    Attributes:
        unit_length: Whether only the direction of a feature matters, not its length.
        discovery_dimensions: Principal directions in which new classes are looked for.
        pretrained_dimensions: Directions of the pretrained feature that decide.
        aligned_dimensions: Directions of the aligned feature that decide, where there is one.
        shape: Share of its own shape in a class's covariance [s in `shape_memory`].
        shape_rank: Directions of that shape that are kept.
        temperature: Softness of EM's assignments.
        parts: Largest number of parts in the mixtures that split novel from known images.
        restarts: Starts of k-means per split.
        caution: Log-odds, times its images, taken off a discovered class in the softened scores:
            it was learned from guesses, and the fewer, the worse (`discovery.wariness`).
    """

    unit_length: bool = True
    discovery_dimensions: int = Field(default=96, gt=0)
    pretrained_dimensions: int = Field(default=512, gt=0)
    aligned_dimensions: int = Field(default=256, gt=0)
    shape: float = Field(default=0.03, ge=0, lt=1)
    shape_rank: int = Field(default=64, gt=0)
    temperature: float = Field(default=4.0, gt=0)
    parts: int = Field(default=4, ge=2)
    restarts: int = Field(default=20, gt=0)
    caution: float = Field(default=18.0, ge=0)


class FeatureMemory(nn.Module):
    """Classes in whitened spaces; grows by classes, never changes one."""

    known: Tensor  # means of all classes where new ones are looked for, (K, d)
    wary: Tensor  # log-odds held against each of them, 0 for labelled ones, (K,)
    gap: Tensor  # how far apart different images usually are (`numerics.copies`), ()
    strange: Tensor  # strangeness of labelled images that were held out, ascending

    def __init__(self, settings: FeatureMemorySettings, spaces: int) -> None:
        """Make an empty memory for images that have so many features."""
        super().__init__()
        s = self.settings = settings
        sizes = (s.pretrained_dimensions, s.aligned_dimensions)[:spaces]
        self.looking = Whitening(s.discovery_dimensions, s.unit_length)
        self.deciding = nn.ModuleList(Whitening(size, s.unit_length) for size in sizes)
        self.shapes = ShapeMemory(0, s.shape, s.shape_rank)
        self.register_buffer("known", torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("wary", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("gap", torch.zeros((), dtype=torch.float64))
        self.register_buffer("strange", torch.zeros(0, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.shapes)

    def fit(self, features: Features, labels_N: Tensor, count: int) -> None:
        """Fit the spaces to labelled images, remember their classes, and what is strange."""
        self._fit(features, labels_N, count)
        held_out = [
            self._held_out(features, labels_N, count, left, out)
            for left, out in folds(labels_N, count)
        ]
        self.strange = torch.cat([self.strange[:0], *held_out]).sort().values
        if self.settings.unit_length:
            self.gap = self.gap.new_tensor(usual_gap(features[0].cpu().numpy()))

    def _fit(self, features: Features, labels_N: Tensor, count: int) -> None:
        self.looking.fit(features[0], labels_N, count)
        for space, one in zip(self._spaces(), features, strict=True):
            space.fit(one, labels_N, count)
        width = sum(space.axes.shape[1] for space in self._spaces())
        s = self.settings
        self.shapes = ShapeMemory(width, s.shape, min(s.shape_rank, width)).to(labels_N.device)
        self.known = self.known.new_zeros(0, self.looking.axes.shape[1])
        self.wary = self.wary.new_zeros(0)
        shares_NK = torch.zeros(len(labels_N), count, device=labels_N.device)
        self.learn(features, shares_NK.scatter_(1, labels_N[:, None], 1.0))

    def _held_out(
        self, features: Features, labels_N: Tensor, count: int, left: Tensor, out: Tensor
    ) -> Tensor:
        """Strangeness of images for a memory of the others."""
        others = FeatureMemory(self.settings, len(self.deciding)).to(labels_N.device)
        others._fit([one[left] for one in features], labels_N[left], count)
        return others._strangeness(others([one[out] for one in features]))

    def strangeness(self, scores_NK: Tensor) -> Tensor | None:
        """Share of known images that are as strange as each image or more, (N,).

        An image of which it is below 0.01 is stranger than 99 of 100 known images. None if it was
        not measured when the memory was fitted.

        Args:
            scores_NK: What the memory gives of the images; -inf for classes that do not count.
        """
        if not len(self.strange):
            return None
        return share_above(self.strange, self._strangeness(scores_NK.double()))

    def _strangeness(self, scores_NK: Tensor) -> Tensor:
        counts = self.wary.isfinite() & scores_NK.isfinite()  # others are no classes
        return -torch.where(counts, scores_NK + self.wary, -torch.inf).amax(dim=1)

    def discover(self, features: Features, count: int, rng: torch.Generator) -> Found:
        """Find so many new classes, and remember them."""
        s = self.settings
        points = self.looking(features[0])
        found = discover(
            points,
            self.known[self.wary.isfinite()].to(points),
            count,
            temperature=s.temperature,
            parts=s.parts,
            restarts=s.restarts,
            rng=rng,
        )
        self.learn(features, found.shares_NM, found.means_Md)
        self.wary[-count:] = wariness(found.shares_NM.sum(dim=0), s.caution)
        return found

    def learn(
        self, features: Features, shares_NM: Tensor, looking_Md: Tensor | None = None
    ) -> None:
        """Remember M classes, to which image n belongs with weight ``shares_NM[n, m]``.

        `looking_Md` are their means where they were found; by default their images' means.
        """
        if looking_Md is None:
            looking = self.looking(features[0])
            total = shares_NM.sum(dim=0).clamp_min(1e-12)[:, None]
            looking_Md = shares_NM.to(looking).T @ looking / total.to(looking)
        self.known = torch.cat([self.known, looking_Md])
        self.wary = torch.cat([self.wary, self.wary.new_zeros(len(looking_Md))])
        points = self.points(features)
        self.shapes.learn(points, shares_NM, points.mean(dim=0).expand(len(looking_Md), -1))

    def extend(self, total: int) -> None:
        """Keep places for classes that are not there: no image ever comes out as one of them."""
        empty = total - len(self)
        if empty > 0:
            self.known = torch.cat([self.known, self.known.new_zeros(empty, self.known.shape[1])])
            self.wary = torch.cat([self.wary, self.wary.new_full((empty,), torch.inf)])
            self.shapes.extend(empty)

    def keep(self, places: Sequence[int]) -> None:
        """Let class i be what stands at ``places[i]``; whatever else there is, is forgotten."""
        self.known, self.wary = self.known[list(places)], self.wary[list(places)]
        self.shapes.keep(places)

    def forward(self, features: Features) -> Tensor:
        """Log-density of each class, softened, less a little for discovered ones, (N, K)."""
        points = self.points(features)
        # Densities in many dimensions are far too sure of themselves: as soft as those of EM.
        softness = self.settings.temperature * points.shape[1] / self.known.shape[1]
        scores: Tensor = self.shapes(points) / softness
        return scores - self.wary.to(scores)

    @staticmethod
    def carried_over(state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A saved state of a method that has a memory, with what older versions did not measure."""
        missing = {"memory.strange": torch.zeros(0), "memory.gap": torch.zeros(())}
        return {**{name: one.double() for name, one in missing.items()}, **state}

    def _spaces(self) -> list[Whitening]:
        """The spaces that decide."""
        return [space for space in self.deciding if isinstance(space, Whitening)]

    def points(self, features: Features) -> Tensor:
        """Images in all deciding spaces, each space with the same say."""
        share = math.sqrt(1 / len(features))
        parts = [space(one) for space, one in zip(self._spaces(), features, strict=True)]
        return share * torch.cat(parts, dim=1)
