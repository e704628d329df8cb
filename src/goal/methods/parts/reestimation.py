"""What decisions teach a memory: the touched classes, estimated anew from images and answers.

The images of the stages that the touched classes came from are looked at again, at most a sample
of them. EM lets the means of the touched classes move while all others stay; what a person said
is certain: an image of a class belongs to it alone, and one that is not of a class never does.
Classes learned from labels stay where they are; their means take in the images that a person
added to them, as if these had been labelled in the first place.

Everything here is a pure function of the raw memory, features and answers, so that leaving an
answer out gives exactly the memory without it.

Shapes: N images, K classes, T touched classes, d directions.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from goal.methods.parts.discovery import wariness
from goal.methods.parts.feature_memory import FeatureMemory, Features
from goal.methods.parts.shape_memory import ShapeMemory

ANYWHERE = -1  # in `Evidence.pinned`: nobody said what the image is

_STEPS = 50
_SETTLED = 1e-4
_INERTIA = 4.0  # images that the former mean of a class counts as, beside answers, at the start
_NONE = 1e-4  # shares below it count as none
_RARE = 1e-6
_CLEARLY = 1.0  # by how much log-likelihood per image of a class it is needed


@dataclass(frozen=True)
class Evidence:
    """Images, and what was said of them.

    Attributes:
        features: Unit features of the images, one tensor per space.
        seen_N: Classes that were known when each was learned: later ones do not compete for it.
        pinned_N: The class that a person gave it, or `ANYWHERE`.
        barred: Classes that a person said it is not of, by image.
        seeds: Images that a part of a split class starts from, by class.
        stand_for: How many images of a large stage each image stands for.
    """

    features: Features
    seen_N: Tensor
    pinned_N: Tensor
    barred: Mapping[int, Sequence[int]]
    seeds: Mapping[int, Sequence[int]]
    stand_for: float = 1.0


@dataclass(frozen=True)
class Touched:
    """Which classes are estimated anew.

    Attributes:
        moving: Discovered and made ones, ascending.
        made: Those of them that decisions brought; all images compete for them.
        left: Those whose images were said to be of others, while no image was said to be of them.
        total: Classes there are then, with places for those that were undone.
        labelled: How many images each labelled class was learned from.
        confirmed: Classes that a person confirmed: nothing is held against them.
    """

    moving: Sequence[int]
    made: frozenset[int]
    left: frozenset[int]
    total: int
    labelled: Sequence[int]
    confirmed: frozenset[int]


def reestimated(
    raw: FeatureMemory, evidence: Evidence, touched: Touched
) -> tuple[FeatureMemory, Tensor]:
    """The memory that answers give, and the share of each image in each moving class, (N, T)."""
    memory = copy.deepcopy(raw)
    memory.extend(touched.total)
    shares_NT = evidence.pinned_N.new_zeros(len(evidence.pinned_N), 0).double()
    if touched.moving:
        found = _needed(memory, memory.looking(evidence.features[0]).double(), evidence, touched)
        shares_NT = found.shares_NT
        _remember(memory, evidence, touched, found)
    _add_to_labelled(memory, evidence, touched)
    for id in touched.confirmed:
        if bool(memory.wary[id].isfinite()):
            memory.wary[id] = 0
    return memory, shares_NT


@dataclass(frozen=True)
class _Settled:
    """The touched classes after EM: their means, the shares of images, and how likely that is."""

    means_Td: Tensor
    shares_NT: Tensor
    likelihood: float
    gone: frozenset[int] = frozenset()


def _needed(
    memory: FeatureMemory, points_Nd: Tensor, evidence: Evidence, touched: Touched
) -> _Settled:
    """EM without the classes that answers emptied.

    Where images of a class were said to be of others, it may be nothing but those others mixed.
    It would go on sharing their images with them, so it is left out unless images are clearly
    likelier with it.
    """
    best = _settled(memory, points_Nd, evidence, touched, frozenset())
    for place, id in enumerate(touched.moving):
        if id in touched.left:
            trial = _settled(memory, points_Nd, evidence, touched, best.gone | {id})
            members = float(best.shares_NT[:, place].sum())
            if trial.likelihood > best.likelihood - _CLEARLY * members:
                best = trial
    return best


def _settled(
    memory: FeatureMemory,
    points_Nd: Tensor,
    evidence: Evidence,
    touched: Touched,
    gone: frozenset[int],
) -> _Settled:
    """EM in which only the touched classes move, and those that are gone have no image."""
    softness = 2 * memory.settings.temperature
    base, found, count = _fixed(memory, points_Nd, evidence, touched, softness)
    open_NT = _open(evidence, touched, gone)
    count = max(1, count - len(gone))
    pins_NT = _pins(evidence, touched).to(points_Nd)
    free_N = (evidence.pinned_N == ANYWHERE).to(points_Nd)[:, None]
    means_Td, novel = _starts(memory, points_Nd, evidence, touched), 0.5
    shares_NT, total_N = pins_NT, base
    for _ in range(_STEPS):
        each = math.log(novel / count)
        joint_NT = each - torch.cdist(points_Nd, means_Td).square() / softness
        joint_NT = joint_NT.masked_fill(~open_NT, -torch.inf)
        known_N, others_N = base + math.log(1 - novel), found + each
        total_N = torch.logaddexp(torch.logaddexp(known_N, others_N), joint_NT.logsumexp(dim=1))
        shares_NT = free_N * (joint_NT - total_N[:, None]).exp() + pins_NT
        weight_T = shares_NT.sum(dim=0)
        mass = weight_T.sum() + (free_N[:, 0] * (others_N - total_N).exp()).sum()
        before, novel = novel, float((mass / len(points_Nd)).clamp(_RARE, 1 - _RARE))
        moved_Td = shares_NT.T @ points_Nd / weight_T.clamp_min(1e-12)[:, None]
        moved_Td = torch.where(weight_T[:, None] > 1e-3, moved_Td, means_Td)
        change = max(float((moved_Td - means_Td).abs().max()), abs(novel - before))
        means_Td = moved_Td
        if change < _SETTLED:
            break
    return _Settled(means_Td, shares_NT, float((free_N[:, 0] * total_N).sum()), gone)


def _fixed(
    memory: FeatureMemory,
    points_Nd: Tensor,
    evidence: Evidence,
    touched: Touched,
    softness: float,
) -> tuple[Tensor, Tensor, int]:
    """Log-densities that stay: of labelled classes together, and of untouched discovered ones.

    Also how many discovered ones there are with the touched ones.
    """
    base = len(touched.labelled)
    last = int(evidence.seen_N.max())
    others = [
        id
        for id in range(base, last)
        if id not in touched.moving and bool(memory.wary[id].isfinite())
    ]
    known_N = _log_density(points_Nd, memory.known[:base], softness).logsumexp(1) - math.log(base)
    if not others:
        return known_N, torch.full_like(known_N, -torch.inf), len(touched.moving)
    density = _log_density(points_Nd, memory.known[others], softness)
    ids = torch.tensor(others, device=density.device)
    density = density.masked_fill(ids >= evidence.seen_N[:, None], -torch.inf)
    return known_N, density.logsumexp(dim=1), len(others) + len(touched.moving)


def _log_density(points_Nd: Tensor, means_Kd: Tensor, softness: float) -> Tensor:
    return -torch.cdist(points_Nd, means_Kd).square() / softness


def _open(evidence: Evidence, touched: Touched, gone: frozenset[int]) -> Tensor:
    """Which touched classes each image may belong to, (N, T)."""
    made = torch.tensor([id in touched.made for id in touched.moving])
    ids = torch.tensor(list(touched.moving))
    open_NT = made.to(evidence.seen_N.device) | (
        ids.to(evidence.seen_N.device) < evidence.seen_N[:, None]
    )
    open_NT[:, [id in gone for id in touched.moving]] = False
    for row, classes in evidence.barred.items():
        for id in classes:
            if id in touched.moving:
                open_NT[row, list(touched.moving).index(id)] = False
    return open_NT


def _pins(evidence: Evidence, touched: Touched) -> Tensor:
    ids = torch.tensor(list(touched.moving), device=evidence.pinned_N.device)
    return evidence.pinned_N[:, None] == ids


def _starts(
    memory: FeatureMemory, points_Nd: Tensor, evidence: Evidence, touched: Touched
) -> Tensor:
    """Where the touched classes start: at their answers, and where they were."""
    means = []
    for id in touched.moving:
        pinned = points_Nd[evidence.pinned_N == id]
        seeds = evidence.seeds.get(id, ())
        if seeds:
            parts, weight = [points_Nd[list(seeds)].mean(dim=0)], _INERTIA
        elif bool(memory.wary[id].isfinite()):
            parts, weight = [memory.known[id]], _INERTIA
        else:
            parts, weight = [points_Nd.new_zeros(points_Nd.shape[1])], 0.0
        total = weight * parts[0] + pinned.sum(dim=0)
        means.append(total / max(weight + len(pinned), _RARE))
    return torch.stack(means)


def _remember(
    memory: FeatureMemory,
    evidence: Evidence,
    touched: Touched,
    found: _Settled,
) -> None:
    """Let the memory know the touched classes as they are now."""
    means_Td, shares_NT = found.means_Td, found.shares_NT
    rows = (shares_NT.amax(dim=1) > _NONE).nonzero()[:, 0]
    shares = shares_NT[rows]
    points = memory.points([one[rows] for one in evidence.features])
    moving, shapes = list(touched.moving), memory.shapes
    anew = ShapeMemory(points.shape[1], shapes.share, shapes.directions.shape[2]).to(points.device)
    anew.learn(points, shares, shapes.means[moving])
    shapes.means[moving], shapes.spreads[moving] = anew.means, anew.spreads
    shapes.directions[moving] = anew.directions
    memory.known[moving] = means_Td
    weight_T = shares.sum(dim=0)
    given_T = _pins(evidence, touched)[rows].to(shares).sum(dim=0)
    guessed_T = 1 - given_T / weight_T.clamp_min(1e-12)
    wary_T = wariness(weight_T * evidence.stand_for, memory.settings.caution)
    memory.wary[moving] = wary_T * guessed_T.clamp(0, 1)
    memory.wary[sorted(found.gone)] = torch.inf


def _add_to_labelled(memory: FeatureMemory, evidence: Evidence, touched: Touched) -> None:
    """Add images that a person gave to labelled classes to the means of these."""
    base = len(touched.labelled)
    for id in sorted({id for id in evidence.pinned_N.tolist() if 0 <= id < base}):
        features = [one[evidence.pinned_N == id] for one in evidence.features]
        looking = memory.looking(features[0]).double()
        points = memory.points(features).double()
        before, total = touched.labelled[id], touched.labelled[id] + len(points)
        memory.known[id] = (before * memory.known[id] + looking.sum(dim=0)) / total
        shapes = memory.shapes
        shapes.means[id] = (before * shapes.means[id] + points.sum(dim=0)) / total
