"""Black pictures and noise: no crash, no number that is none, and said so."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goal.cli import main
from goal.common.progress import Reporter
from goal.data.own_images import from_files
from goal.data.screening import screen_below
from goal.models.model import Model
from tests.models.digit_folders import write_digits


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    labelled = write_digits(folder / "labelled", dict.fromkeys(range(4), range(60)), labelled=True)
    arguments = ["fit", str(labelled), "--model", str(folder / "model")]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--backbone", "digits-vit"])
    assert end.value.code == 0
    week = write_digits(folder / "week", dict.fromkeys(range(4), range(60, 75)))
    rng = np.random.default_rng(0)
    for number in range(10):
        noise = rng.integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(week / f"noise-{number}.png")
    for name, colour in (("black", 0), ("white", 255)):
        Image.new("L", (8, 8), colour).save(week / f"{name}.png")
    return folder


def test_they_have_a_class_or_none_and_it_is_said(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = shop / "week.csv"
    with pytest.raises(SystemExit) as end:
        main(["predict", str(shop / "week"), "--model", str(shop / "model"), "--out", str(table)])
    assert end.value.code == 0
    said = "".join(capsys.readouterr()).replace("\n", " ")
    assert "2 images show one colour all over; their class means nothing" in said
    assert "black.png" in said and "white.png" in said
    assert "nan" not in table.read_text().lower()

    found = Model(shop / "model").predict(
        from_files(screen_below(shop / "week", Reporter())), unknown=0.01
    )
    assert np.isfinite(found.confidence).all() and np.isfinite(found.second_confidence).all()
    noise = np.array(["noise" in name for name in found.names])
    digit = np.array([Path(name).name[0].isdigit() for name in found.names])
    assert found.unknown[noise].mean() > 0.7 and found.unknown[digit].mean() < 0.2


def test_a_stage_of_them_alone_is_no_crash(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"black-{number}.png")
    with pytest.raises(SystemExit) as end:
        main(["discover", str(tmp_path), "--model", str(shop / "model")])
    assert end.value.code == 0
    said = "".join(capsys.readouterr())
    assert "5 images show one colour all over" in said and "their class means nothing" in said
