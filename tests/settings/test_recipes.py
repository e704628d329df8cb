"""Every shipped recipe parses and is found by name, and no method lacks one."""

from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.data.sets import DATASETS
from goal.methods.registry import METHODS
from goal.settings.plain import read_settings
from goal.settings.recipes import find_recipe, shipped_recipes
from goal.settings.settings import compose


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_parses(name: str) -> None:
    settings = compose(read_settings(shipped_recipes()[name]))
    assert settings.data.name == name.split("/")[0]
    assert compose(settings.plain()).hash() == settings.hash()


def test_recipes_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert shipped_recipes()
    for name, path in shipped_recipes().items():
        assert find_recipe(name) == find_recipe(f"{name}.yaml") == find_recipe(str(path)) == path
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 3")
    assert find_recipe(str(mine)) == mine
    with pytest.raises(GoalError, match=r"No recipe 'digits/gaol'.* Did you mean 'digits/goal'"):
        find_recipe("digits/gaol")


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name != "folder"])
def test_every_method_has_a_recipe_for_every_benchmark(dataset: str) -> None:
    missing = [name for name in METHODS if f"{dataset}/{name}" not in shipped_recipes()]
    assert missing == []
