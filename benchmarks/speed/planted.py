"""Planted features of any number of classes, and `goal` run on them in a process of its own.

A class is a Gaussian about its centre. Images scatter about it alike in all classes, more along
some directions than along others, as features of networks do. What is planted is known, so the
best possible answer is, too: the nearest centre in the space in which the scatter is a ball.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
from scipy.optimize import linear_sum_assignment

import goal

_CHUNK = 50_000
_FAMILY = 5  # classes that are near relatives
_TELLING = 64  # directions in which classes differ
_FREEDOM = 20  # degrees of freedom of Student's t: how often an image lies far out

Numbers = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Planted:
    """Known classes, and new ones beside them; five classes each are near relatives.

    Attributes:
        known: Classes with labels.
        new: Classes without.
        width: Numbers per feature; classes differ in the first directions only.
        apart: Distance of families, in deviations of an image along one direction.
        near: Distance of relatives.
        seed: Chooses centres and images.
    """

    known: int = 50
    new: int = 10
    width: int = 384
    apart: float = 24.0
    near: float = 14.0
    seed: int = 0

    @property
    def scatter(self) -> Numbers:
        """Deviation along each direction: from 1 down to a tenth."""
        return np.geomspace(1, 0.1, self.width).astype(np.float32)

    @property
    def centres(self) -> Numbers:
        """Centres in deviations, (classes, width)."""
        rng, count = np.random.default_rng(self.seed), self.known + self.new
        families = self.apart * rng.normal(size=(-(-count // _FAMILY), _TELLING))
        own = self.near * rng.normal(size=(count, _TELLING))
        centres = np.zeros((count, self.width), np.float32)
        centres[:, :_TELLING] = (families[rng.permutation(count) // _FAMILY] + own) / (
            2 * _TELLING
        ) ** 0.5
        return centres

    def images(self, classes: Classes, seed: int) -> Iterator[Numbers]:
        """Features of images of the given classes, chunk by chunk; some lie far out."""
        rng, centres = np.random.default_rng([self.seed, seed]), self.centres
        for start in range(0, len(classes), _CHUNK):
            part = classes[start : start + _CHUNK]
            noise = rng.standard_normal((len(part), self.width), np.float32)
            far = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, (len(part), 1))).astype(np.float32)
            yield (centres[part] + noise * far) * self.scatter

    def best(self, features: Numbers) -> Classes:
        """Class of the nearest centre: nobody can do better, whatever was learned."""
        points, centres = features / self.scatter, self.centres
        return np.asarray((points @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1))


def write(planted: Planted, images: int, each: int, folder: Path) -> tuple[Classes, float]:
    """Write labelled and unlabelled features into a folder.

    Returns:
        Classes of the unlabelled ones, and the percentage that the best possible answer has right.
    """
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.repeat(np.arange(planted.known), each)
    names = np.array([f"{label:05d}" for label in labels])  # in the order of their numbers
    np.savez(folder / "labelled.npz", X=np.concatenate([*planted.images(labels, 1)]), y=names)
    truth = np.random.default_rng([planted.seed, 2]).permutation(
        np.arange(images) % (planted.known + planted.new)
    )
    shape = (images, planted.width)
    held = np.lib.format.open_memmap(folder / "week.npy", "w+", np.float16, shape)
    right = start = 0
    for part in planted.images(truth, 3):
        held[start : start + len(part)] = part
        right += int((planted.best(part) == truth[start : start + len(part)]).sum())
        start += len(part)
    held.flush()
    return truth, 100 * right / images


def accuracy(found: Classes, truth: Classes, known: int) -> float:
    """Percentage right: known classes by their number, new ones matched one to one."""
    size = int(max(found.max(), truth.max())) + 1
    table = np.zeros((size, size), np.int64)
    np.add.at(table, (found, truth), 1)
    rows, columns = linear_sum_assignment(table[known:, known:], maximize=True)
    right = np.trace(table[:known, :known]) + table[known:, known:][rows, columns].sum()
    return float(100 * right / len(truth))


def answers(model: Path, stage: int = 1) -> Classes:
    """Classes that a stage of a model gave its images."""
    table = pyarrow.parquet.read_table(model / "stages" / f"{stage:03d}" / "predictions.parquet")
    return np.asarray(table.column("class_id").to_numpy())


@dataclass(frozen=True)
class Used:
    """What a command used: seconds, seconds of processors, and the peak of its memory in MB."""

    seconds: float
    user: float
    kernel: float
    megabytes: float


def command(folder: Path, *words: str, start: tuple[str, ...] | None = None) -> Used:
    """Run a command of `goal` in a folder, with a cache of its own.

    Args:
        folder: The folder.
        words: The command's words.
        start: What starts `goal`, if not the ordinary way.
    """
    began = time.perf_counter()
    here = {"GOAL_CACHE": str(folder / "cache"), "PYTHONPATH": str(Path(goal.__file__).parents[1])}
    line = [*(start or (sys.executable, "-m", "goal")), *words]
    with (folder / "screen.txt").open("w") as screen:
        process = subprocess.Popen(line, cwd=folder, env={**os.environ, **here}, stdout=screen)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"goal {' '.join(words)} failed.")
    return Used(time.perf_counter() - began, usage.ru_utime, usage.ru_stime, _megabytes(usage))


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e3 if sys.platform == "linux" else 1e6)
