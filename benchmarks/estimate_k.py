"""How far off the estimators of the number of new classes are.

    python -m benchmarks.estimate_k [--recipe FILE --data-root FOLDER --backbone NAME]
                                    [--new 0,1,2,3,4,5,6] [--draws 5] [--rehearsal 0]
                                    [--known-images N] [--new-images N]

Known are the base classes of the recipe (digits by default). A draw mixes the base images of its
first unlabelled stage with those of randomly chosen novel classes. With --rehearsal N base classes
play the novel ones, as N stages' worth of them: that is where settings are chosen. With
--known-images N a stage has N labelled images of each known class, which are not measured then,
instead of the protocol's.
"""

import sys
from pathlib import Path

import cyclopts
import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from goal.backbone.load import load_backbone
from goal.bank.bank import TokenBank
from goal.bank.necks import fit_neck
from goal.cli.common import flags, integers
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.common.seeding import stream
from goal.counting.estimators import ESTIMATORS, candidates, measure_known
from goal.data.sets import load_dataset
from goal.protocol.rehearsal import rehearse
from goal.protocol.stages import build_stages, class_order, targets
from goal.settings.recipes import assemble
from goal.settings.settings import Settings

console = Console(width=120)
NAMES = [name for name in ESTIMATORS if name != "auto"]


class Pool:
    """Features of a protocol's images: labelled ones, a stage's known ones, and novel classes."""

    def __init__(self, settings: Settings) -> None:
        s, reporter = settings, Reporter()
        dataset, protocol = load_dataset(s.data, reporter), s.protocol
        backbone = load_backbone(s.backbone)
        classes = len(dataset.class_names)
        labels = (dataset.train.labels, dataset.test.labels)
        real = build_stages(*labels, classes, protocol)
        if backbone.trunk.neck is not None:
            ids = real[0].train_ids
            fit_neck(backbone.trunk, dataset.train, ids, s.transform, s.bank, reporter)
        if protocol.rehearsal:
            dataset, protocol = rehearse(dataset, protocol)
            classes = len(dataset.class_names)
            labels = (dataset.train.labels, dataset.test.labels)
            real = build_stages(*labels, classes, protocol)
        order = targets(dataset.train.labels, class_order(classes, protocol))
        bank = TokenBank(backbone.trunk, s.transform, s.bank, reporter)
        self.num_known = real[0].num_new
        self.labels = torch.from_numpy(order[real[0].train_ids])
        self.known: Tensor
        self.novel: list[Tensor] = []
        for stage in real:
            tokens = bank.open(dataset.train, stage.train_ids, augmented_views=False)
            with torch.no_grad():
                parts = torch.arange(len(tokens)).split(512)
                found = torch.cat([backbone.tail(tokens.clean(part)) for part in parts])
            features, truth = F.normalize(found, dim=1), torch.from_numpy(order[stage.train_ids])
            if stage.index == 0:
                self.labelled = features
            else:
                new = range(stage.num_known, stage.num_seen)
                self.novel += [features[truth == label] for label in new]
            if stage.index == 1:
                self.known = features[truth < self.num_known]

    def hold_back(self, count: int) -> None:
        """Put so many labelled images of each class into the stages instead of their known ones."""
        if count < 0 or int(torch.bincount(self.labels).min()) < 2 * count:
            raise GoalError(f"--known-images {count}: at most half of a class's labelled images.")
        held = torch.zeros(len(self.labels), dtype=torch.bool)
        for label in range(self.num_known):
            held[(self.labels == label).nonzero()[:count]] = True
        self.known, self.labelled = self.labelled[held], self.labelled[~held]
        self.labels = self.labels[~held]

    def draw(self, num_new: int, rng: torch.Generator, images: int | None) -> Tensor:
        """Features of a stage with so many new classes of so many images, in random order."""
        chosen = torch.randperm(len(self.novel), generator=rng)[:num_new].tolist()
        stage = torch.cat([self.known, *(self.novel[index][:images] for index in chosen)])
        return stage[torch.randperm(len(stage), generator=rng)]


def errors(
    pool: Pool, num_new: int, images: int | None, draws: int, most: int
) -> dict[str, list[int]]:
    """Estimate minus truth of each estimator, for several draws."""
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    known = measure_known(pool.labelled, pool.labels, pool.num_known)
    for draw in range(draws):
        features = pool.draw(num_new, stream(0, "draw", num_new, draw), images)
        choice = candidates(features, *known, most, stream(0, "estimate", num_new, draw))
        for name in NAMES:
            found[name].append(ESTIMATORS[name](choice) - num_new)
    return found


def main(
    *,
    recipe: str = "digits/goal",
    data_root: Path | None = None,
    backbone: str | None = None,
    new: str = "0,1,2,3,4,5,6",
    draws: int = 5,
    rehearsal: int = 0,
    known_images: int | None = None,
    new_images: int | None = None,
) -> None:
    """Print the mean error and the mean absolute error of every estimator.

    Args:
        recipe: Settings of the protocol, transform and backbone.
        data_root: Folder that holds the dataset.
        backbone: Backbone, where the recipe names none.
        new: True numbers of new classes to try.
        draws: Draws for each.
        rehearsal: Stages of base classes that play the novel ones; 0 takes the novel ones.
        known_images: Images of each known class in a stage; by default the protocol's.
        new_images: Images of each new class in a stage, at most; by default all.
    """
    settings = assemble(
        recipe, None, None, flags(backbone, data_root), [f"protocol.rehearsal={rehearsal}"]
    )
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    pool = Pool(settings)
    if known_images is not None:
        pool.hold_back(known_images)
    wanted = integers(new)
    if max(wanted) > len(pool.novel):
        raise GoalError(f"--new asks for {max(wanted)} classes; there are {len(pool.novel)} novel.")
    most = max(10, pool.num_known // 2)
    table = Table("new classes", *NAMES)
    total: dict[str, list[int]] = {name: [] for name in NAMES}
    for num_new in wanted:
        found = errors(pool, num_new, new_images, draws, most)
        table.add_row(
            str(num_new),
            *(f"{np.mean(off):+.1f} ({np.mean(np.abs(off)):.1f})" for off in found.values()),
        )
        for name in NAMES:
            total[name] += found[name]
    table.add_row("all", *(f"({np.mean(np.abs(total[name])):.2f})" for name in NAMES))
    console.print(
        f"{pool.num_known} known classes; mean error (mean absolute error), {draws} draws"
    )
    console.print(table)


if __name__ == "__main__":
    try:
        cyclopts.run(main)
    except GoalError as error:
        console.print(str(error), style="red")
        sys.exit(1)
