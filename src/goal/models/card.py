"""The card of a pushed model: what it knows, how it was measured, how to use it."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from goal.common.escaping import visible
from goal.features.labelled import open_labelled
from goal.models.folder import ModelFolder
from goal.models.model import Model
from goal.models.piles import learned_images
from goal.models.pushed import PICTURES, Pushed
from goal.models.records import StageRecord

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
_KINDS = {"fit": "labels", "discover": "discovery", "extend": "vertices added"}


@dataclass(frozen=True)
class Measured:
    """Accuracy on labelled images in percent: of all, of classes it learned from labels, of others.

    None where there were none of a kind.
    """

    images: int
    all: float | None
    base: float | None
    novel: float | None


def measure(model: Model, folder: Path) -> Measured:
    """Measure a model on labelled images, one folder per class, by the names of classes."""
    given = open_labelled(folder, None, model.reporter)
    found = model.predict(given.images)
    positions = {name: at for at, name in enumerate(given.images.names)}
    truth = [given.classes[given.numbers[positions[name]]] for name in found.names]
    known = {known.name: known for known in model.roster.classes()}
    named = [model.roster.names[id] if id >= 0 else None for id in found.ids.tolist()]
    right = np.array([a == b for a, b in zip(named, truth, strict=True)])
    base = np.array([name in known and known[name].stage == 0 for name in truth])
    return Measured(len(truth), _percent(right), _percent(right[base]), _percent(right[~base]))


def card(
    model: ModelFolder, about: Pushed, name: str, folder: Path, measured: Measured | None
) -> str:
    """Draw the card as Markdown with the hub's metadata before it.

    Args:
        model: The model.
        about: Its pushed form.
        name: What it is called.
        folder: The folder of the pushed form, which may have pictures.
        measured: How often it is right, if that was measured.
    """
    backbone = str(about.settings["backbone"]["name"])
    parts = [
        _head(backbone),
        f"# {_text(name)}\n\nIt learned {_count(about, labelled=True)} from labels and found "
        f"{_count(about, labelled=False)} in unlabelled images, with the method "
        f"`{about.settings['method']['name']}` of goal-cgcd {about.version} on features of "
        f"`{_code(backbone)}`. It can go on discovering.",
        _use(name),
        _figures(model, about, measured),
        _classes(about, folder),
        "## Limits\n\nA discovered class is what the model took for one; its name is "
        "a person's, or `new-N` where nobody has named it. The images that it learned are not part "
        "of it.\n",
    ]
    return "\n\n".join(parts)


def _head(backbone: str) -> str:
    about: dict[str, object] = {
        "library_name": "goal-cgcd",
        "pipeline_tag": "image-classification",
        "tags": ["category-discovery", "continual-learning", "goal-cgcd"],
    }
    if _HUB_ID.fullmatch(backbone):
        about["base_model"] = backbone
    return f"---\n{yaml.safe_dump(about, sort_keys=False)}---"


def _use(name: str) -> str:
    quoted = _code(name)
    return (
        f'## Use it\n\n```python\nfrom goal import Goal\n\nmodel = Goal.from_pretrained("{quoted}")'
        '\nprint(model.predict(["image.jpg"]))\n```\n\n'
        f"On the command line, `goal pull {quoted} --model FOLDER`, then `goal predict IMAGES "
        "--model FOLDER`."
    )


def _figures(model: ModelFolder, about: Pushed, measured: Measured | None) -> str:
    text = "## Figures\n\n"
    if measured is None:
        text += "Accuracy was not measured: no labelled test images were given.\n\n"
    else:
        rows = {"all": measured.all, "labelled": measured.base, "discovered": measured.novel}
        said = [
            f"{value:.1f}% of {key} classes" for key, value in rows.items() if value is not None
        ]
        text += (
            f"Accuracy on {measured.images:,} labelled test images, by name: {', '.join(said)}.\n\n"
        )
    text += "| stage | by | images | new classes | estimated | mean confidence |\n"
    text += "|---:|---|---:|---:|---|---:|\n"
    return text + "".join(_stage(model, record) for record in about.records)


def _stage(model: ModelFolder, record: StageRecord) -> str:
    learned = learned_images(model.store, [model.records[record.step]]).values()
    sure = [known.confidence for known in learned]
    confidence = f"{float(np.mean(sure)):.2f}" if sure and record.kind == "discover" else "–"
    estimate = "–" if record.estimate is None else record.estimate.text()
    cells = (record.index, _KINDS.get(record.kind, record.kind), f"{record.images:,}")
    more = (len(record.names), _text(estimate), confidence)
    return f"| {' | '.join(map(str, (*cells, *more)))} |\n"


def _classes(about: Pushed, folder: Path) -> str:
    rows = ["## Classes\n\n| class | from | images | pictures |\n|---|---|---:|---|"]
    for known in about.roster.classes():
        origin = "labels" if known.stage == 0 else f"stage {known.stage}"
        files = sorted((folder / PICTURES).glob(f"{known.id}-*.webp"))
        shown = " ".join(f"![]({PICTURES}/{file.name})" for file in files)
        rows.append(f"| {_text(known.name)} | {origin} | {known.size:,} | {shown} |")
    return "\n".join(rows)


def _count(about: Pushed, labelled: bool) -> str:
    number = sum((known.stage == 0) == labelled for known in about.roster.classes())
    return "1 class" if number == 1 else f"{number} classes"


def _percent(right: Sequence[bool] | np.ndarray) -> float | None:
    return 100 * float(np.mean(right)) if len(right) else None


def _text(name: str) -> str:
    """A name as plain text in Markdown."""
    return _MARKUP.sub(r"\\\1", html.escape(visible(name)))


def _code(name: str) -> str:
    """A name within code, which no quote or backtick can end."""
    return re.sub(r"[^\w./ -]", "?", visible(name))
