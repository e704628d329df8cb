"""The model of the demo: made in seconds, with classes to name and pictures to see."""

from pathlib import Path

from goal.common.progress import Reporter
from goal.models.demo import make_demo_model


def test_the_demo_model_discovers_digits_and_is_made_once(tmp_path: Path) -> None:
    model = make_demo_model(tmp_path / "model", tmp_path / "images", 0, Reporter())
    assert [record.kind for record in model.records] == ["fit", "discover", "discover"]
    new = [known for known in model.roster.classes() if known.stage > 0]
    assert 3 <= len(new) <= 7 and all(known.size > 10 for known in new)
    seal = model.store.seal(2)
    again = make_demo_model(tmp_path / "model", tmp_path / "images", 0, Reporter())
    assert len(again.records) == 3 and again.store.seal(2) == seal
    assert len(list((tmp_path / "images").rglob("*.png"))) == 160 + 200 + 140
