"""A model's page: whatever names, captions and times a folder holds, they come out as text."""

import base64
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.models.classes import Roster
from goal.models.page import page_is_current, pictures, write_page
from goal.models.predictions import Predictions
from goal.models.records import Estimate
from goal.models.store import Judgement, StageRecord, Store
from tests.models.digit_folders import screened, write_digits
from tests.pages.hostile import STRANGE, TAG, assert_harmless


def write_model(root: Path, folder: str, text: str) -> str:
    """The page of a model with a labelled and three discovered classes, all texts given."""
    store = Store(root / folder)
    about: dict[str, Any] = {"created": text, "version": text, "key": text, "trunk": text}
    first = StageRecord(kind="fit", step=0, index=0, num_known=0, **_classes(text, 1), **about)
    found = StageRecord(kind="discover", step=1, index=1, num_known=1, **_classes(text, 3), **about)
    empty = StageRecord(kind="discover", step=2, index=2, num_known=4, **about)
    caption = text.replace("\0", "")  # with one, the file is refused
    gallery = {
        "classes": {"1": {"most": [["7", caption]], "least": [["0", caption]]}},
        "thumbnails": {"7": base64.b64encode(b"picture").decode()},
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
    assert "<h1>&lt;img src=x onerror=alert(1)&gt;</h1>" in page
    assert "<b>2 classes</b> discovered since" in ordinary


def record(kind: str, step: int, index: int, **given: Any) -> StageRecord:
    about = {"created": "2026-11-08T09:05:00+00:00", "version": "0", "key": "k", "trunk": "t"}
    return StageRecord.parse({"kind": kind, "step": step, "index": index, **about, **given})


def shop(root: Path) -> tuple[Store, list[StageRecord]]:
    """Two labelled classes, two discovered ones, and a stage later that adds to one of these."""
    store = Store(root / "my shop")
    two = {"vertices": [None] * 2}
    records = [
        record("fit", 0, 0, num_known=0, names=["cat", "dog"], sizes={"0": 9, "1": 1}, **two),
        record("discover", 1, 1, num_known=2, names=["new-1", "new-2"], **two).model_copy(
            update={"sizes": {"2": 134, "3": 5}, "images": 1139}
        ),
        record("discover", 2, 2, num_known=4, sizes={"2": 12}),
    ]
    for step, keys in enumerate((("0", "1"), ("2", "3"), ())):
        store.path(step).mkdir(parents=True)
        rows = {
            key: {"most": [[key, f"a rather long file name {key}.png (99%)"]], "least": []}
            for key in keys
        }
        thumbs = {key: base64.b64encode(f"{step}-{key}".encode()).decode() for key in keys}
        content = {"classes": rows, "thumbnails": thumbs}
        (store.path(step) / "gallery.json").write_text(json.dumps(content))
    return store, records


def cards_of(page: str) -> dict[str, Any]:
    found = re.findall(r"<script type='application/json' id='\w+-data'>(.*?)</script>", page)
    return {card["title"]: card for text in found for card in json.loads(text)["cards"]}


def table_of(page: str, section: str) -> list[list[str]]:
    part = page.split(f"<section id='{section}'>")[1].split("</section>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", part)][
        1:
    ]


def test_card_and_table_count_the_same_images(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    page = write_page(store, records, Roster(records, Judgement())).read_text()
    assert cards_of(page)["new-1"]["note"] == "146 images: 134 at stage 1, 12 at stage 2"
    assert ["new-1", "stage 1", "146", "2"] in table_of(page, "classes")  # nothing is merged
    assert cards_of(page)["dog"]["note"] == "1 image, with labels"
    assert "152 images" not in page and "in 161 images" in page
    assert "<b>2 classes</b> learned" in page


def test_labelled_classes_have_pictures_too(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    page = write_page(store, records, Roster(records, Judgement())).read_text()
    assert cards_of(page)["cat"]["rows"] == {
        "most confident": [["0/0", "a rather long file name 0.png (99%)"]]
    }
    assert base64.b64encode(b"0-0").decode() in page


def test_labelled_pictures_say_what_the_model_makes_of_them(tmp_path: Path) -> None:
    given = screened(write_digits(tmp_path, {0: range(8)}))
    names = [f"{place}.png" for place in range(8)]
    records = [record("fit", 0, 0, num_known=0, names=["cat", "dog"], vertices=[None, None])]
    ids = np.array([0, 0, 0, 1, 0, 0, 0, 0])
    sure = np.array([0.6, 0.9, 0.5, 0.99, 0.8, 0.7, 0.95, 0.85])
    found = Predictions(names, ids, sure, Roster(records, Judgement()), 0, [])
    rows = pictures(given, found, 0, np.zeros(8, np.int64))["classes"]["0"]
    assert [caption for _, caption in rows["most"]][:2] == ["6.png (95%)", "1.png (90%)"]
    least = ["3.png (taken for another class)", "2.png (50%)"]
    assert [caption for _, caption in rows["least"]] == least


def test_a_merged_class_has_one_card_with_the_pictures_of_both(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    judgement = Judgement(names={"2": "tractor"}, merged={"3": 2})
    page = write_page(store, records, Roster(records, judgement)).read_text()
    assert list(cards_of(page)) == ["tractor", "cat", "dog"]
    card = cards_of(page)["tractor"]
    assert list(card["rows"]) == ["most confident", "most confident, merged from new-2"]
    assert card["note"] == "151 images: 139 at stage 1, 12 at stage 2"
    assert ["tractor", "stage 1", "new-2", "151", "2"] in table_of(page, "classes")
    assert ["dog", "labels", "–", "1", "1"] in table_of(page, "classes")


def test_times_and_commands_are_for_people(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    judgement = Judgement(names={"2": "it's; rm -rf\n/"})
    page = write_page(store, records, Roster(records, judgement)).read_text()
    assert "8 Nov 2026, 09:05 UTC" in page and "T09:05" not in page
    assert ["1", "discovered", "8 Nov 2026, 09:05 UTC", "1,139", "0", "2"] in table_of(
        page, "stages"
    )
    commands = [html.unescape(text) for text in re.findall(r"<code>(.*?)</code>", page)]
    words = [shlex.split(command) for command in commands]
    assert all(part[-1] == str(store.folder) or "--out" in part for part in words)
    assert words[1][:3] == ["goal", "rename", "it's; rm -rf\\n/"]
    assert page.count("class='copy'") == len(commands) == 4


def test_a_count_is_shown_with_its_runner_up(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    page = write_page(store, records, Roster(records, Judgement())).read_text()
    assert "runner-up" not in page
    sure = Estimate(count=2, runner_up=3, confidence=0.04)
    records[1] = records[1].model_copy(update={"estimate": sure})
    page = write_page(store, records, Roster(records, Judgement())).read_text()
    assert "Stage 1: Estimated 2 new classes (3 is the runner-up" in page


def test_a_page_elsewhere_and_never_over_the_models_own_files(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    roster = Roster(records, Judgement())
    out = write_page(store, records, roster, tmp_path / "pages" / "shop.html")
    assert out.exists() and not (store.folder / "report.html").exists()
    with pytest.raises(GoalError, match="inside the model folder"):
        write_page(store, records, roster, store.path(0) / "gallery.json")


def test_a_stale_page_is_told_from_a_current_one(tmp_path: Path) -> None:
    store, records = shop(tmp_path)
    roster = Roster(records, Judgement())
    assert not page_is_current(store, records, roster)
    write_page(store, records[:2], Roster(records[:2], Judgement()))
    assert not page_is_current(store, records, roster)  # killed between commit and page
    write_page(store, records, roster)
    assert page_is_current(store, records, roster)
    assert not page_is_current(store, records, Roster(records, Judgement(names={"2": "x"})))
    again = [*records[:2], records[2].model_copy(update={"key": "other"})]  # undone, and another
    assert not page_is_current(store, again, Roster(again, Judgement()))
