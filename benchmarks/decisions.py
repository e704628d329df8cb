"""How long it takes until a correction is learned, by how many images a model knows.

    python -m benchmarks.decisions [--images 100000] [--classes 100] [--new 20] [--width 768]

Made-up features: a cloud per class. Printed: seconds of the first correction after a stage, which
reads what the model keeps, and of the next ones, for a touched class or two; apart from that, the
table of all images, which is worked out when somebody looks at it.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from goal.common.progress import Reporter
from goal.features.given import feature_set
from goal.models.history import Action
from goal.models.model import Model
from goal.models.settings import model_settings


def clouds(
    centres: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], seed: int
) -> npt.NDArray[np.float32]:
    """An image of each label, near the centre of its class."""
    rng = np.random.default_rng(seed)
    width = centres.shape[1]
    noise = rng.standard_normal((len(labels), width), dtype=np.float32)
    return centres[labels] + 1.2 * noise / np.float32(np.sqrt(width))


def taking(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--new", type=int, default=20)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    total = given.classes + given.new
    centres = rng.normal(size=(total, given.width)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder) / "model", Reporter())
        labels = np.repeat(np.arange(given.classes), 50)
        base = feature_set(clouds(centres, labels, 1)).images
        names = [f"class-{label}" for label in range(given.classes)]
        model.fit(base, labels, names, model_settings())
        truth = rng.integers(0, total, given.images)
        week = feature_set(clouds(centres, truth, 2)).images
        said = taking(lambda: model.discover(week, given.new))
        lines = [("learning the stage", said), *corrections(model, week.contents({}))]
    threads = torch.get_num_threads()
    sys.stdout.write(f"{given.images:,} images, {total} classes, {threads} threads, seconds\n")
    for name, seconds in lines:
        sys.stdout.write(f"{name:40} {seconds:8.2f}\n")


def corrections(model: Model, digests: list[bytes]) -> list[tuple[str, float]]:
    """Seconds of corrections, and of the table after them."""
    first = model.roster.names[-1]
    images = [digest.hex() for digest in digests[:3]]
    teaching: list[float] = []

    found = [("first correction, with its table", taking(lambda: model.move(images, first)))]
    for number in range(3):
        one = [digest.hex() for digest in digests[10 * number + 10 :][:3]]
        model.store.act(_moved(one, len(model.roster.names) - 1))
        teaching.append(taking(model.learner))
    found.append(("a correction learned (median of 3)", statistics.median(teaching)))
    found.append(("the table of all images after it", taking(model.table)))
    found.append(("the table again", taking(model.table)))
    return found


def _moved(images: list[str], target: int) -> Action:
    return Action(kind="move", said="", ids=[target], images=images, targets=[target] * len(images))


if __name__ == "__main__":
    main()
