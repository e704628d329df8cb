"""Classes of GOAL+ estimated again from what a person says of images.

What a person says is certain: an answered image belongs to its class with share one, or never to a
class that it is said not to be of. All others are shared out by EM as in `discovery`, where
new classes start from their answered images. So answers that call two clusters one class, or
a cluster two, change the clustering and not only the names. An answered image counts as several
others: it is a sample of its class, they are guesses.

Everything is a pure function of memory, features and answers: what is left out of the answers
leaves no trace.

Shapes: N images, A answers, K classes, M of them estimated again, d dimensions.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from goal.methods.parts.discovery import wariness
from goal.methods.parts.feature_memory import FeatureMemory, Features

ASSURANCE = 5.0  # images of whose class nobody is certain that an answered one counts as
_STEPS = 50
_SETTLED = 1e-4  # deviations that no mean moves by any more
_RARE = 1e-6
_NEVER = -torch.inf


@dataclass(frozen=True)
class Answers:
    """What is certain of some images.

    Attributes:
        positions_A: The images; one may come several times.
        classes_A: A class of each, by number.
        holds_A: Whether the image is of that class, or is not.
    """

    positions_A: Tensor
    classes_A: Tensor
    holds_A: Tensor

    @classmethod
    def of(cls, positions: Sequence[int], classes: Sequence[int]) -> "Answers":
        """Images that are of the given classes."""
        count = len(positions)
        return cls(
            torch.tensor(positions, dtype=torch.int64),
            torch.tensor(classes, dtype=torch.int64),
            torch.ones(count, dtype=torch.bool),
        )

    def pinned(self, images: int) -> Tensor:
        """Class of each image that is certain, -1 for the others, (N,); the last answer counts."""
        found = torch.full((images,), -1, dtype=torch.int64)
        for position, label in zip(
            self.positions_A[self.holds_A].tolist(),
            self.classes_A[self.holds_A].tolist(),
            strict=True,
        ):
            found[position] = label
        return found


def taught(
    memory: FeatureMemory,
    features: Features,
    touched: Sequence[int],
    answers: Answers,
    start_Md: Tensor | None = None,
) -> FeatureMemory:
    """A memory in which some classes are estimated again; all others stay as they are.

    Args:
        memory: What is known so far; it is not changed.
        features: Features of images in which the touched classes occur.
        touched: The classes, by number. Numbers past the memory's are classes to be added, which
            need an answered image each.
        answers: What is certain of these images.
        start_Md: Where the means of the touched classes start; by default at their answered
            images, each with where the class was as one more.
    """
    pinned_N = answers.pinned(len(features[0])).to(features[0].device)
    shares_NM, means_Md = settled(memory, features, touched, answers, start_Md)
    learned = copy.deepcopy(memory)
    learned.learn(features, shares_NM, means_Md)
    for place, one in enumerate(touched):
        certain = float((pinned_N == one).sum())
        total = shares_NM[:, place].sum()
        guessed = (total - certain).clamp_min(0) / total.clamp_min(1e-12)
        was_labelled = one < len(memory) and not bool(memory.wary[one])
        held = 0.0 if was_labelled else guessed * wariness(total, memory.settings.caution)
        learned.wary[len(memory) + place] = held
    learned.keep(_places(len(memory), touched))
    return learned


def _places(known: int, touched: Sequence[int]) -> list[int]:
    """Where each class stands in a memory to which the touched ones were added once more."""
    again = {one: known + place for place, one in enumerate(touched)}
    return [again.get(one, one) for one in range(max([known - 1, *touched]) + 1)]


def settled(
    memory: FeatureMemory,
    features: Features,
    touched: Sequence[int],
    answers: Answers,
    start_Md: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """How much each image belongs to each touched class, (N, M), and their means, (M, d)."""
    points_Nd = memory.looking(features[0]).double()
    pinned_N = answers.pinned(len(points_Nd)).to(points_Nd.device)
    if start_Md is None:
        start_Md = torch.stack([_start(memory, points_Nd, pinned_N, one) for one in touched])
    allowed = _allowed(memory, points_Nd, touched, answers)
    certain_N = torch.where(pinned_N >= 0, ASSURANCE, 1.0).double()
    return _settle(points_Nd, allowed, start_Md, certain_N, memory.settings.temperature)


def _start(memory: FeatureMemory, points_Nd: Tensor, pinned_N: Tensor, one: int) -> Tensor:
    """Where the mean of a class starts: at its answered images and where it was."""
    before = memory.known[one : one + 1].to(points_Nd)  # nothing for a class that is to be added
    return torch.cat([points_Nd[pinned_N == one], before]).mean(dim=0)


@dataclass(frozen=True)
class _Allowed:
    """Which classes an image may belong to: the density of the others, and a mask of the touched.

    `others_N` is the log of the mean density of all classes that stay, -inf where an image is
    certain to be of none of them.
    """

    others_N: Tensor
    touched_NM: Tensor


def _allowed(
    memory: FeatureMemory, points_Nd: Tensor, touched: Sequence[int], answers: Answers
) -> _Allowed:
    there = memory.wary.isfinite().tolist()  # others are no classes any more
    fixed = [one for one, is_ in enumerate(there) if is_ and one not in set(touched)]
    far_NF = -torch.cdist(points_Nd, memory.known[fixed].to(points_Nd)).square()
    far_NF = far_NF / (2 * memory.settings.temperature)
    may = torch.ones(len(points_Nd), len(touched), dtype=torch.bool, device=points_Nd.device)
    column = {one: place for place, one in enumerate(touched)}
    row = {one: place for place, one in enumerate(fixed)}
    for at, one, holds in zip(
        answers.positions_A.tolist(),
        answers.classes_A.tolist(),
        answers.holds_A.tolist(),
        strict=True,
    ):
        if holds:
            may[at] = False
            other = far_NF[at, row[one]].clone() if one in row else None
            far_NF[at] = _NEVER
            if other is None:
                may[at, column[one]] = True
            else:
                far_NF[at, row[one]] = other
        elif one in column:
            may[at, column[one]] = False
        else:
            far_NF[at, row[one]] = _NEVER
    others_N = far_NF.logsumexp(dim=1) - torch.tensor(max(len(fixed), 1)).log()
    return _Allowed(others_N, may)


def _settle(
    points_Nd: Tensor, allowed: _Allowed, start_Md: Tensor, certain_N: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """EM over all images, each among the classes that it may belong to: shares and means."""
    new, novel = start_Md, 0.5
    shares = allowed.touched_NM.double()
    for _ in range(_STEPS):
        shares = _expect(points_Nd, allowed, new, novel, temperature)
        part = shares.sum() / len(points_Nd)
        before, novel = novel, float(part.clamp(_RARE, 1 - _RARE))
        counted = shares * certain_N[:, None]
        weight = counted.sum(dim=0)
        moved = counted.T @ points_Nd / weight.clamp_min(1e-12)[:, None]
        moved = torch.where(weight[:, None] > 1e-3, moved, new)
        settled = max(float((moved - new).abs().max()), abs(novel - before)) < _SETTLED
        new = moved
        if settled:
            break
    return shares, new


def _expect(
    points_Nd: Tensor, allowed: _Allowed, new_Md: Tensor, novel: float, temperature: float
) -> Tensor:
    """How much each image belongs to each touched class, (N, M)."""
    even = torch.tensor(novel / len(new_Md)).log()
    joint_NM = even - torch.cdist(points_Nd, new_Md).square() / (2 * temperature)
    joint_NM = torch.where(allowed.touched_NM, joint_NM, _NEVER)
    rest_N = allowed.others_N + torch.tensor(1 - novel).log()
    total_N = torch.logaddexp(rest_N, joint_NM.logsumexp(dim=1))
    nowhere = torch.isneginf(total_N)  # said to be of no class there is
    return (joint_NM - total_N.masked_fill(nowhere, 0)[:, None]).exp()
