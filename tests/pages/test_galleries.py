"""Galleries: the right images are chosen, and no name can become markup."""

import io
import json
import re

import numpy as np
from PIL import Image

from goal.evaluation.chosen import PER_ROW, choose, evenly
from goal.pages.galleries import Card, Picture, gallery_data, thumbnail
from goal.pages.html import render


def test_choice_by_confidence_and_mistakes() -> None:
    # Predicted 0 is base class 0; predicted 1 matches class 2; predicted 2 matches nothing.
    owner = np.array([0, 2, -1])
    predictions = np.array([0, 1, 1, 1, 2])
    truth = np.array([0, 2, 1, 2, 1])
    sure = np.array([0.9, 0.1, 0.8, 0.5, 0.3])
    first, second = choose(predictions, truth, owner, sure, num_base=1)
    assert (first.predicted, first.size, first.wrong) == (1, 3, 1)
    assert first.most.tolist() == [2, 3, 1] and first.least.tolist() == []
    assert first.mistaken.tolist() == [2]
    assert (second.predicted, second.size, second.wrong) == (2, 1, 1)


def test_least_confident_come_last_first_and_never_twice() -> None:
    count = 2 * PER_ROW + 3
    zeros = np.zeros(count, dtype=np.int64)
    (only,) = choose(zeros, zeros + 1, np.array([1]), np.linspace(1, 0, count), num_base=1)
    assert only.most.tolist() == list(range(PER_ROW))
    assert only.least.tolist() == list(range(count - 1, count - 1 - PER_ROW, -1))
    assert only.wrong == 0


def test_an_even_choice_keeps_both_ends() -> None:
    assert evenly(np.arange(5), 9).tolist() == [0, 1, 2, 3, 4]
    assert evenly(np.arange(101), 3).tolist() == [0, 50, 100]


def test_tiny_images_keep_their_pixels() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(thumbnail(Image.fromarray(pixels)))) as opened:
        np.testing.assert_array_equal(np.asarray(opened.convert("RGB")), pixels)


def test_names_cannot_become_markup() -> None:
    attack = "</script><img src=x onerror=alert(1)>"
    content = gallery_data([Card(attack, attack, {attack: [Picture("k", attack)]})], {"k": b"x"})
    html = render("gallery.html", name="g", content=content)
    assert html.count("<") == 4  # a div and a script, each opened and closed
    (text,) = re.findall(r"<script[^>]*>(.*)</script>", html)
    (card,) = json.loads(text)["cards"]
    assert card["title"] == attack and card["rows"] == {attack: [["k", attack]]}
