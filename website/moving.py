"""The README's moving picture: a map of digits on which stage after stage finds new classes.

    python -m website.moving docs/images/stages.webp

Each test image is drawn as itself, at its place on a map of features (t-SNE, made once). It is grey
while nobody knows its class, and takes the colour of the class that the model gives it.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.optimize import linear_sum_assignment
from sklearn.manifold import TSNE

from goal import Goal
from goal.common.arrays import IntArray
from goal.data.images import DataSettings
from goal.data.sets import load_dataset
from goal.storage.files import replacing

SIZE, MARGIN, HEAD = (760, 520), 24, 64
STAGES = ((0, 1, 2, 3), (4, 5), (6, 7), (8, 9))
KNOWN_AGAIN = 15  # images of each known class in a later stage, as in the digits protocol
GREY = (190, 196, 203)
COLOURS = (
    *((9, 105, 218), (26, 127, 55), (130, 80, 223), (17, 137, 147), (207, 91, 0), (191, 57, 137)),
    *((154, 103, 0), (207, 34, 46), (80, 100, 120), (110, 140, 20)),
)
HOLD, FADE, STEPS = 1500, 70, 7

Colours = tuple[tuple[int, int, int], ...]


def main(out: Path) -> None:
    """Learn the stages, draw them, and write the picture."""
    data = load_dataset(DataSettings())
    train, test = data.train, data.test
    model = Goal(backbone="digits-vit", random_state=0)
    pictures = [test.image(index) for index in range(len(test.labels))]
    frames: list[Image.Image] = []
    seen: tuple[int, ...] = ()
    for stage, classes in enumerate(STAGES):
        fresh = np.flatnonzero(np.isin(train.labels, classes))
        again = [np.flatnonzero(train.labels == known)[-KNOWN_AGAIN:] for known in seen]
        given = [train.image(index) for index in np.concatenate([fresh, *again]).tolist()]
        if stage == 0:
            model.fit(given, train.labels[fresh])
            places = _places(model.transform(pictures))
        else:
            model.discover(given, n_new=len(classes))
        seen += classes
        shown = np.flatnonzero(np.isin(test.labels, seen)).tolist()
        named = model.predict([pictures[index] for index in shown])
        right = _share_right(named, test.labels[shown], len(seen))
        before = frames[-1] if frames else None
        frames += _arrive(pictures, places, test.labels, seen, classes, before, stage, len(given))
        said = f"{len(seen)} classes known, {100 * right:.0f}% of test images named right"
        last = _draw(
            [pictures[index] for index in shown],
            places[shown],
            tuple(COLOURS[int(name)] for name in named),
            _title(stage, len(given)),
            said,
        )
        frames += [*_fade(frames[-1], last), last]
    _write(frames, out)


def _title(stage: int, count: int) -> str:
    labels = "labelled images of four classes" if stage == 0 else "unlabelled images"
    return f"Stage {stage}: {count:,} {labels}"


def _arrive(
    pictures: list[Image.Image],
    places: np.ndarray,
    labels: IntArray,
    seen: tuple[int, ...],
    classes: tuple[int, ...],
    before: Image.Image | None,
    stage: int,
    count: int,
) -> list[Image.Image]:
    """The stage's new classes come in, grey."""
    new = np.flatnonzero(np.isin(labels, classes)).tolist()
    under = before if before is not None else Image.new("RGB", SIZE, "white")
    said = "two classes are new: which images are they?" if stage else "named by a person"
    chosen = [pictures[index] for index in new]
    grey = _draw(chosen, places[new], (GREY,) * len(new), _title(stage, count), said, under)
    return [*_fade(under, grey), grey]


def _share_right(named: IntArray, truth: IntArray, count: int) -> float:
    """Share of images named right under the best matching of found classes and true ones."""
    table = np.zeros((count, count), dtype=np.int64)
    np.add.at(table, (np.asarray(named, dtype=np.int64), truth), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(truth))


def _places(features: np.ndarray) -> np.ndarray:
    """A place on the picture for each feature."""
    flat = TSNE(random_state=0, init="pca", perplexity=25).fit_transform(features)
    low, high = flat.min(axis=0), flat.max(axis=0)
    room = np.array([SIZE[0] - 2 * MARGIN - 20, SIZE[1] - 2 * MARGIN - HEAD - 20])
    return np.asarray((flat - low) / (high - low) * room + [MARGIN, MARGIN + HEAD])


def _draw(
    pictures: list[Image.Image],
    places: np.ndarray,
    colours: Colours,
    title: str,
    said: str,
    under: Image.Image | None = None,
) -> Image.Image:
    """Draw digits in their colours, on a picture or on white, under a title."""
    sheet = Image.new("RGB", SIZE, "white") if under is None else under.copy()
    for picture, (x, y), colour in zip(pictures, places.tolist(), colours, strict=True):
        mask = picture.convert("L").resize((20, 20), Image.Resampling.BILINEAR)
        sheet.paste(colour, (round(x), round(y)), mask)
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((0, 0, SIZE[0], HEAD), fill=(246, 248, 250))
    pen.text((MARGIN, 8), title, (31, 35, 40), ImageFont.load_default(22))
    pen.text((MARGIN, 37), said, (87, 96, 106), ImageFont.load_default(16))
    return sheet


def _fade(one: Image.Image, other: Image.Image) -> list[Image.Image]:
    return [Image.blend(one, other, step / STEPS) for step in range(1, STEPS)]


def _write(frames: list[Image.Image], out: Path) -> None:
    """Write the frames; those that are whole stay a while."""
    durations = [HOLD if (at + 1) % STEPS == 0 else FADE for at in range(len(frames))]
    durations[-1] = 2 * HOLD
    rest = frames[1:]
    with replacing(out) as stream:
        frames[0].save(
            stream,
            format="webp",
            save_all=True,
            append_images=rest,
            duration=durations,
            loop=0,
            quality=70,
            method=6,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
