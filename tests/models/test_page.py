"""A model's page: whatever names, captions and times a folder holds, they come out as text."""

import base64
import json
from pathlib import Path
from typing import Any

from goal.models.classes import Roster
from goal.models.page import write_page
from goal.models.store import Judgement, StageRecord, Store
from tests.pages.hostile import STRANGE, TAG, assert_harmless


def write_model(root: Path, folder: str, text: str) -> str:
    """The page of a model with a labelled and three discovered classes, all texts given."""
    store = Store(root / folder)
    about: dict[str, Any] = {"created": text, "version": text, "key": text, "trunk": text}
    first = StageRecord(kind="fit", step=0, index=0, num_known=0, **_classes(text, 1), **about)
    found = StageRecord(kind="discover", step=1, index=1, num_known=1, **_classes(text, 3), **about)
    empty = StageRecord(kind="discover", step=2, index=2, num_known=4, **about)
    gallery = {
        "classes": {"1": {"most": [[text, text]], "least": [["0", text]]}},
        "thumbnails": {text: base64.b64encode(b"picture").decode()},
    }
    for step, content in ((1, gallery), (2, {"classes": {}, "thumbnails": {}})):
        store.path(step).mkdir(parents=True)
        (store.path(step) / "gallery.json").write_text(json.dumps(content))
    records = [first, found, empty]
    judgement = Judgement(names={"2": text}, merged={"3": 1})
    return write_page(store, records, Roster(records, judgement)).read_text("utf-8")


def _classes(text: str, count: int) -> dict[str, Any]:
    return {"names": [text] * count, "vertices": [None] * count}


def test_every_text_of_a_model_comes_out_as_text(tmp_path: Path) -> None:
    ordinary = write_model(tmp_path, "ordinary", "harmless")
    page = write_model(tmp_path, TAG, STRANGE)
    assert_harmless(page, ordinary)
    assert "<h1>&lt;img src=x onerror=alert(1)&gt;: 3 classes</h1>" in page
    assert ordinary.count("<h2>Stage ") == 2 and "No image came out" in ordinary
