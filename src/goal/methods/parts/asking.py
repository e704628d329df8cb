"""What to ask a person about a stage, and what GOAL+ makes of the answers.

First the most typical image of each new class, then one far from those that were asked about:
two answers tell whether a class is one, and whether two are the same. Then in turn the most
doubtful image and one more of the class with the most images per answer. (Doubt alone is a poor
guide at first: arXiv 2210.02442.)

After every round classes are estimated again (`taught`), and doubt with them.

Shapes: N images, K classes, M new ones, d dimensions.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from goal.methods.base import Person
from goal.methods.parts.feature_memory import FeatureMemory, Features
from goal.methods.parts.taught import Answers, settled, taught
from goal.numerics.clustering import assign

ROUND = 10  # questions between two estimates
_EACH = 2  # images of each new class that are asked about before doubt counts
_CORE = 0.7  # share of a class's images that are not its outskirts
_FEW = 5  # images that a class which was no class starts from again
NOBODY = -1


class Questions:
    """Which images to ask about, best first."""

    def __init__(self, points_Nd: Tensor, shares_NM: Tensor, asked: Sequence[int]) -> None:
        """Take the images, how much they belong to each new class, and those asked before."""
        self._points = points_Nd = points_Nd.double()
        shares_NM = shares_NM.double()
        rest = (1 - shares_NM.sum(dim=1, keepdim=True)).clamp_min(0)
        all_ = torch.cat([shares_NM, rest], dim=1)
        self._own = all_.argmax(dim=1)
        best = all_.topk(2, dim=1).values
        self._margin = best[:, 0] - best[:, 1]
        self._size = shares_NM.sum(dim=0)
        means = shares_NM.T @ points_Nd / self._size.clamp_min(1e-12)[:, None]
        self._away = (points_Nd - means[self._own.clamp_max(len(means) - 1)]).norm(dim=1)
        self._asked = list(asked)

    def __iter__(self) -> Iterator[int]:
        """Yield positions, each once."""
        doubtful = False
        while True:
            label = self._least_asked()
            enough = label is None or self._answers(label) >= _EACH
            choice = None
            if enough and doubtful:
                choice = self._most_doubtful()
            elif label is not None:
                choice = self._typical(label)
            if choice is None and (choice := self._most_doubtful()) is None:
                return
            doubtful = enough and not doubtful
            self._asked.append(choice)
            yield choice

    def _answers(self, label: int) -> int:
        return int((self._own[self._asked] == label).sum()) if self._asked else 0

    def _free(self, label: int) -> Tensor:
        mine = self._own == label
        mine[self._asked] = False
        return mine.nonzero()[:, 0]

    def _least_asked(self) -> int | None:
        """The new class with the most images per answer, those with few answers first."""
        found = [
            (min(self._answers(label), _EACH), -float(size) / (1 + self._answers(label)), label)
            for label, size in enumerate(self._size)
            if len(self._free(label))
        ]
        return min(found)[2] if found else None

    def _typical(self, label: int) -> int:
        """The image nearest to its class's mean, or far from those asked about but no outlier."""
        free = self._free(label)
        told = [position for position in self._asked if self._own[position] == label]
        away = self._away[free]
        if not told:
            return int(free[away.argmin()])
        core = free[away <= away.quantile(_CORE)]
        near = torch.cdist(self._points[core], self._points[told]).amin(dim=1)
        return int(core[near.argmax()])

    def _most_doubtful(self) -> int | None:
        margin = self._margin.clone()
        margin[self._asked] = torch.inf
        choice = int(margin.argmin())
        return None if bool(torch.isinf(margin[choice])) else choice


def _order(count: int, rng: torch.Generator) -> list[int]:
    return [int(position) for position in torch.randperm(count, generator=rng)]


class Asking:
    """A stage whose new classes were found, and a person who can be asked about its images."""

    def __init__(
        self,
        memory: FeatureMemory,
        features: Features,
        first: int,
        shares_NM: Tensor,
        named_K: Tensor,
    ) -> None:
        """Begin.

        Args:
            memory: It knows the stage's classes already, as they were found.
            features: Those of the stage's images.
            first: The first of its new classes.
            shares_NM: How much each image belongs to each.
            named_K: What the person calls each class of before the stage, -1 for nothing yet.
        """
        self._memory, self._features, self._first = memory, features, first
        self._points = memory.looking(features[0]).double()
        self._found = self._shares = shares_NM.double()
        named = named_K.tolist() + [NOBODY] * (first - len(named_K))
        self._class_of = {name: one for one, name in enumerate(named) if name != NOBODY}
        self._named = named
        self._said: dict[int, int] = {}

    def run(
        self, person: Person, positions_N: Tensor, random: torch.Generator | None = None
    ) -> tuple[FeatureMemory, Tensor, Tensor]:
        """Ask until nothing may be asked any more.

        Args:
            person: Who is asked.
            positions_N: Where the images stand in the stage.
            random: Draws the images that are asked about; by default the telling ones come first.

        Returns:
            The memory as the answers have it, the shares of the new classes, and what the person
            calls each class.
        """
        answers, slots, start = self._understood()
        drawn = None if random is None else iter(_order(len(self._points), random))
        while person.left and len(self._said) < len(self._points):
            told = drawn or iter(Questions(self._points, self._shares, list(self._said)))
            for _ in range(min(ROUND, person.left, len(self._points) - len(self._said))):
                position = next(told)
                self._said[position] = person.says(int(positions_N[position]))
            answers, slots, start = self._understood()
            self._shares, _ = settled(self._memory, self._features, self._new, answers, start)
        memory = taught(self._memory, self._features, self._new, answers, start)
        names = {one: name for name, one in slots.items()}
        new = [names.get(one, NOBODY) for one in self._new]
        return memory, self._shares, torch.tensor([*self._named, *new])

    @property
    def _new(self) -> list[int]:
        return list(range(self._first, self._first + self._found.shape[1]))

    def _understood(self) -> tuple[Answers, dict[int, int], Tensor]:
        """What the answers mean: facts about images, the class of each new name, and a start."""
        for position, name in self._said.items():
            self._recognise(position, name)
        fresh = [name for name in dict.fromkeys(self._said.values()) if name not in self._class_of]
        votes = torch.zeros(len(fresh), self._found.shape[1], dtype=torch.float64)
        for position, name in self._said.items():
            if name in fresh:
                votes[fresh.index(name)] += self._found[position].cpu()
        match = assign(votes).tolist()
        slots = {
            name: self._first + slot for name, slot in zip(fresh, match, strict=True) if slot >= 0
        }
        sure = {**self._class_of, **slots}
        known = [(position, sure[name]) for position, name in self._said.items() if name in sure]
        answers = Answers.of([at for at, _ in known], [label for _, label in known])
        return answers, slots, self._start(answers, votes, match)

    def _recognise(self, position: int, name: int) -> None:
        """A name never heard, of an image in an old class without one: it is that class's."""
        if name in self._class_of or float(self._found[position].sum()) > 0.5:
            return
        one = [feature[position : position + 1] for feature in self._features]
        best = int(self._memory(one)[0, : self._first].argmax())
        if self._named[best] == NOBODY:
            self._named[best], self._class_of[name] = name, best

    def _start(self, answers: Answers, votes_JM: Tensor, match: list[int]) -> Tensor:
        """Where the means of the new classes start.

        A class that was found with one name starts where it was found; one that shares a cluster
        with others, or has none, at its answered images. A cluster that lost its name to
        another starts again, at images that no class explains.
        """
        start = self._memory.known[self._new].to(self._points, copy=True)
        pinned = answers.pinned(len(self._points)).to(self._points.device)
        for row, slot in enumerate(match):
            alone = float(votes_JM[row, slot]) > 0.5 and int((votes_JM[:, slot] > 0.5).sum()) == 1
            if slot >= 0 and not alone:
                start[slot] = self._points[pinned == self._first + slot].mean(dim=0)
        claimed = [slot for slot in match if slot >= 0]
        for slot in range(len(start)):
            if slot not in claimed and bool((votes_JM[:, slot] > 0.5).any()):
                others = [other for other in range(len(start)) if other != slot]
                start[slot] = self._unexplained(start[others])
        return start

    def _unexplained(self, means_Md: Tensor) -> Tensor:
        known = torch.cat([self._memory.known[: self._first].to(self._points), means_Md])
        far = torch.cdist(self._points, known).amin(dim=1)
        near = (self._points - self._points[far.argmax()]).norm(dim=1)
        return torch.as_tensor(self._points[near.argsort()[:_FEW]].mean(dim=0))
