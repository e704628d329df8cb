"""How far off counts are, by the counter that runs and models share."""

from dataclasses import dataclass

import numpy as np
import torch

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.counting.counter import Counter, most_new
from goal.data.images import Dataset
from goal.features.given import known_features
from goal.features.source import FeatureSource, FeatureTail
from goal.protocol.stages import build_stages, class_order, targets
from goal.settings.settings import Settings


@dataclass(frozen=True)
class Pile:
    """What a stage holds in which classes are counted.

    Attributes:
        new: New classes.
        images: Images of the largest of them.
        uneven: Whether sizes spread one to ten, geometrically; otherwise all are alike.
        shown: Images of each known class.
    """

    new: int
    images: int
    uneven: bool
    shown: int

    def sizes(self) -> IntArray:
        """Images of each new class."""
        if not self.new:
            return np.zeros(0, np.int64)
        least = max(1, self.images // 10) if self.uneven else self.images
        return np.geomspace(self.images, least, self.new).round().astype(np.int64)[::-1]


class Pool:
    """Features of known classes' labelled images, of others of them, and of novel classes."""

    def __init__(self, dataset: Dataset, settings: Settings, known: int | None, draw: int) -> None:
        """Cut a dataset.

        Args:
            dataset: Features in the place of images.
            settings: Protocol and seed.
            known: In a rehearsal so many base classes are known and the others play novel ones;
                None takes all base classes and the true novel ones.
            draw: Which division into known and novel ones.
        """
        behind = known_features(dataset.train)
        assert behind is not None
        protocol, count = settings.protocol, len(dataset.class_names)
        stages = build_stages(dataset.train.labels, dataset.test.labels, count, protocol)
        order = targets(dataset.train.labels, class_order(count, protocol))
        used = np.unique(np.concatenate([stage.train_ids for stage in stages]))
        rng = np.random.default_rng((draw, 1))
        novel = list(range(protocol.base_classes, stages[-1].num_seen))
        base = list(range(protocol.base_classes))
        if known is not None:
            used, base = stages[0].train_ids, rng.permutation(base).tolist()
            base, novel = base[:known], base[known:]
        by_class = {
            label: behind.features[rng.permutation(used[order[used] == label])]
            for label in (*base, *novel)
        }
        labelled = {label: int((order[stages[0].train_ids] == label).sum()) for label in base}
        cut = {
            label: held if known is None else -(-held * 3 // 4) for label, held in labelled.items()
        }
        self.known = [by_class[label][: cut[label]] for label in base]
        self.shown = [by_class[label][cut[label] :] for label in base]
        self.novel = [by_class[label] for label in novel]
        self.counter = Counter(FeatureTail(behind.features.shape[1]), settings.seed)
        labels = np.repeat(np.arange(len(base)), [len(part) for part in self.known])
        self.counter.note_labelled(
            FeatureSource(np.concatenate(self.known)), torch.from_numpy(labels)
        )

    def count(self, pile: Pile, draw: int) -> int:
        """Count the new classes of a pile."""
        if pile.new > len(self.novel):
            raise GoalError(f"{pile.new} new classes are wanted; there are {len(self.novel)}.")
        rng = np.random.default_rng((draw, pile.new, pile.images, pile.uneven))
        chosen = rng.permutation(len(self.novel))[: pile.new].tolist()
        parts = [part[rng.permutation(len(part))[: pile.shown]] for part in self.shown]
        for index, size in zip(chosen, pile.sizes().tolist(), strict=True):
            some = self.novel[index]
            parts.append(some[rng.permutation(len(some))[:size]])
        stage = FeatureSource(rng.permutation(np.concatenate(parts)))
        return self.counter.count(stage, draw, most_new(len(stage), None)).count
