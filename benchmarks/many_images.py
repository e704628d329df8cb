"""A folder of 100,000 images, from files to classes: ``python -m benchmarks.many_images``.

Noisy digits are written as PNG files, some of them damaged. `goal fit` learns four classes,
`goal discover` finds two more in the whole folder; printed are its time and the memory it held at
most, for the whole folder and for a tenth of it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from goal.data.images import DataSettings
from goal.data.sets import load_dataset

KNOWN, SHOWN, EACH = 4, 6, 60
DAMAGED_EVERY = 1000


def write(folder: Path, images: int) -> None:
    """Write labelled digits and a week of unlabelled ones."""
    digits, rng = load_dataset(DataSettings()).train, np.random.default_rng(0)
    for label in range(KNOWN):
        for index in np.flatnonzero(digits.labels == label)[:EACH].tolist():
            path = folder / "labelled" / str(label) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            digits.image(index).save(path)
    shown = np.flatnonzero(digits.labels < SHOWN).tolist()
    for number in range(images):
        path = folder / "week" / f"{number // 1000:03d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(digits.image(shown[number % len(shown)]), dtype=np.float64)
        noisy = pixels + rng.normal(0, 8, pixels.shape[:2])[..., None]
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path)
        if number % DAMAGED_EVERY == 0:
            path.write_bytes(path.read_bytes()[:60])


def goal(folder: Path, *words: str) -> tuple[float, float]:
    """Run a command in a folder; return seconds and the peak of resident memory in MB."""
    began = time.perf_counter()
    environment = {**os.environ, "GOAL_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "goal", *words]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"goal {' '.join(words)} failed.")
    return time.perf_counter() - began, _megabytes(usage)


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e3 if sys.platform == "linux" else 1e6)


def main() -> None:
    """Measure a tenth of the images, then all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    wanted = parser.parse_args().images
    for images in (wanted // 10, wanted):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write(folder, images)
            goal(folder, "fit", "labelled", "--model", "m", "--backbone", "digits-vit")
            seconds, peak = goal(folder, "discover", "week", "--model", "m", "--new", "2")
            skipped = (folder / "m" / "stages" / "001" / "skipped.csv").read_text().count("\n") - 1
            sys.stdout.write(
                f"{images:,} images: {seconds:.0f} s, {peak:.0f} MB at most, {skipped} skipped\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
