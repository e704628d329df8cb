"""Every shipped recipe parses and is found by name, and no method lacks one."""

from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.data.sets import DATASETS
from goal.methods.registry import METHODS
from goal.settings.recipes import read_recipe, recipe_titles
from goal.settings.settings import compose


@pytest.mark.parametrize("name", recipe_titles())
def test_every_shipped_recipe_parses(name: str) -> None:
    settings = compose(read_recipe(name))
    assert f"{settings.data.name}/{settings.method.name}" == name
    assert compose(settings.plain()).hash() == settings.hash()


def test_recipes_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert read_recipe("digits/goal") == read_recipe("digits/goal.yaml") != read_recipe("cub/goal")
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 3")
    assert read_recipe(str(mine)) == {"seed": 3}
    with pytest.raises(GoalError, match=r"No recipe 'digits/gaol'.* Did you mean 'digits/goal'"):
        read_recipe("digits/gaol")


@pytest.mark.parametrize("dataset", [name for name in DATASETS.shipped if name != "folder"])
def test_every_method_has_a_recipe_for_every_benchmark(dataset: str) -> None:
    missing = [name for name in METHODS.shipped if f"{dataset}/{name}" not in recipe_titles()]
    assert missing == []


@pytest.mark.parametrize("dataset", [name for name in DATASETS.shipped if name != "folder"])
def test_the_literal_preset_is_literal_in_every_recipe(dataset: str) -> None:
    preset = compose({"method": {"name": "goal-literal"}}).plain()["method"]
    recipe = compose(read_recipe(f"{dataset}/goal-literal")).plain()["method"]
    changed = {key for key, value in recipe.items() if value != preset[key]}
    assert changed <= {"projector_hidden", "projector_out"}  # sizes, for images of 8 x 8 pixels
