"""A small model to play with: digits as image files, learned in three stages within seconds."""

from pathlib import Path

import numpy as np

from goal.common.progress import Reporter
from goal.data.images import DataSettings, Images
from goal.data.own_images import ImageSet, from_files
from goal.data.screening import screen_below
from goal.data.sets import load_dataset
from goal.models.model import Model
from goal.models.settings import model_settings

_LABELLED = {0: range(40), 1: range(40), 2: range(40), 3: range(40)}
_WEEKS = (
    {0: range(40, 50), 1: range(40, 50), 4: range(60), 5: range(60), 6: range(60)},
    {2: range(40, 50), 4: range(60, 70), 7: range(60), 8: range(60)},
)


def make_demo_model(folder: Path, images: Path, seed: int, reporter: Reporter) -> Model:
    """Write images of digits and teach a model: four classes with labels, then two weeks without.

    Made once: a folder that holds the model already is left as it is.

    Args:
        folder: The model folder.
        images: Where the image files go: ``labelled``, ``week-1`` and ``week-2``.
        seed: Seed of the model.
        reporter: Told how far the work has come.
    """
    model = Model(folder, reporter)
    if len(model.store.records()) > len(_WEEKS):
        return model
    digits = load_dataset(DataSettings()).train
    given = _write(digits, images / "labelled", _LABELLED, by_class=True)
    labels = np.array([int(Path(name).parent.name) for name in given.names])
    names = [str(label) for label in _LABELLED]
    model.fit(given, labels, names, model_settings("goal-plus", "digits-vit", seed))
    for number, counts in enumerate(_WEEKS, start=1):
        model.discover(_write(digits, images / f"week-{number}", counts))
    return model


def _write(
    digits: Images, folder: Path, counts: dict[int, range], by_class: bool = False
) -> ImageSet:
    """Write some images of each digit as PNG files, all in one folder or in one per class."""
    for label, chosen in counts.items():
        members = np.flatnonzero(digits.labels == label)[chosen.start : chosen.stop]
        for number, index in enumerate(members.tolist(), start=chosen.start):
            name = f"{label}-{number:03d}.png"
            path = folder / str(label) / name if by_class else folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                digits.image(index).save(path)
    return from_files(screen_below(folder, Reporter()), folder)
