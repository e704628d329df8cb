"""Nothing but a model's own commands writes into a model folder."""

from pathlib import Path

import pytest

from goal.cli import main
from goal.common.errors import GoalError
from goal.models.places import outside_models, writable


def model(folder: Path) -> Path:
    (folder / "stages" / "000").mkdir(parents=True)
    (folder / "stages" / "000" / "stage.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "command",
    [["report", "runs"], ["figures", "runs"], ["embed", "images"]],
    ids=lambda command: command[0],
)
def test_commands_that_write_elsewhere_refuse_a_model_folder(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path / "shop")
    for out in (folder, folder / "stages" / "000" / "stage.json", folder / "deep" / "er"):
        with pytest.raises(SystemExit) as end:
            main([*command, "--out", str(out)])
        assert end.value.code == 1
        assert "lies in the model folder" in "".join(capsys.readouterr()).replace("\n", " ")
    assert sorted(path.name for path in folder.rglob("*")) == ["000", "stage.json", "stages"]


def test_a_link_beside_a_model_that_leads_into_it_is_seen(tmp_path: Path) -> None:
    folder = model(tmp_path / "shop")
    (tmp_path / "short").symlink_to(folder / "stages" / "000")
    for path in (tmp_path / "short" / "x.csv", tmp_path / "short"):
        with pytest.raises(GoalError, match="lies in the model folder"):
            outside_models(path)
    assert writable(tmp_path / "x.csv", False) == tmp_path / "x.csv"
