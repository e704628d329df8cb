"""How well images of classes never shown are told from known ones.

    python -m benchmarks.unknown [--recipe FILE --data-root FOLDER --backbone NAME]
                                 [--known-images 20] [--rehearsal 0] [--seeds 0,1,2]

A memory of GOAL+ is fitted to labelled images, less some of each class that are held back and play
fresh known images. Strange are all images of the novel classes of all stages; with --rehearsal N
they are N stages' worth of base classes. Printed are AUROC; FPR@95, the share of strange images
that pass where 95% of known ones do; and, for each share that is stated, the known images truly
refused and the strange ones caught.
"""

import sys
from pathlib import Path

import cyclopts
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.estimate_k import Pool
from goal.cli.common import flags, integers
from goal.common.errors import GoalError
from goal.common.seeding import stream
from goal.methods.parts.feature_memory import FeatureMemory, FeatureMemorySettings
from goal.settings.recipes import assemble

console = Console(width=120)
SHARES = (0.01, 0.05, 0.1)


def measure(pool: Pool, held: Tensor) -> list[float]:
    """AUROC, FPR@95, and known images refused and strange ones caught at each share, percent."""
    memory = FeatureMemory(FeatureMemorySettings(), 1)
    memory.fit([pool.labelled[~held]], pool.labels[~held], pool.num_known)
    known, strange = (
        np.asarray(memory._strangeness(memory([features])).numpy())
        for features in (pool.labelled[held], torch.cat(pool.novel))
    )
    truth = np.repeat([0, 1], [len(known), len(strange)])
    auroc = roc_auc_score(truth, np.concatenate([known, strange]))
    passing = (strange <= np.quantile(known, 0.95)).mean()
    held_out = memory.strange.numpy()
    limits = [np.quantile(held_out, 1 - share) for share in SHARES]
    shares = [(values > limit).mean() for limit in limits for values in (known, strange)]
    return [100 * float(value) for value in (auroc, passing, *shares)]


def held_back(pool: Pool, count: int, seed: int) -> Tensor:
    """Which labelled images are held back: so many of each class, at random."""
    held = torch.zeros(len(pool.labels), dtype=torch.bool)
    for label in range(pool.num_known):
        members = (pool.labels == label).nonzero()[:, 0]
        if not 0 < count <= len(members) // 2:
            raise GoalError(f"--known-images {count}: at most half of a class's labelled images.")
        order = torch.randperm(len(members), generator=stream(seed, "held", label))
        held[members[order[:count]]] = True
    return held


def main(
    *,
    recipe: str = "digits/goal-plus",
    data_root: Path | None = None,
    backbone: str | None = None,
    known_images: int = 20,
    rehearsal: int = 0,
    seeds: str = "0,1,2",
) -> None:
    """Print the table.

    Args:
        recipe: Settings of the protocol, transform and backbone.
        data_root: Folder that holds the dataset.
        backbone: Backbone, where the recipe names none.
        known_images: Labelled images of each class that are held back.
        rehearsal: Stages of base classes that play the novel ones; 0 takes the novel ones.
        seeds: Seeds by which images are held back.
    """
    rows = []
    for seed in integers(seeds):
        changed = [f"protocol.rehearsal={rehearsal}"]
        settings = assemble(recipe, None, "goal-plus", flags(backbone, data_root), changed)
        torch.set_num_threads(settings.threads or torch.get_num_threads())
        pool = Pool(settings)
        rows.append(measure(pool, held_back(pool, known_images, seed)))
    table = Table("", "AUROC", "FPR@95", *(f"at {100 * s:.0f}%: refused / caught" for s in SHARES))
    for name, row in [*enumerate(rows), ("mean", np.mean(rows, axis=0).tolist())]:
        pairs = [f"{row[at]:.1f} / {row[at + 1]:.1f}" for at in range(2, len(row), 2)]
        table.add_row(str(name), f"{row[0]:.1f}", f"{row[1]:.1f}", *pairs)
    console.print(f"{pool.num_known} known classes, {len(pool.novel)} never shown; percent")
    console.print(table)


if __name__ == "__main__":
    try:
        cyclopts.run(main)
    except GoalError as error:
        console.print(str(error), style="red")
        sys.exit(1)
