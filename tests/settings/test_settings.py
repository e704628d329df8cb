"""Settings: strict, frozen, layered, hashed; errors that help; and streams of random numbers."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from goal.common.errors import GoalError, did_you_mean, pick
from goal.common.section import Section
from goal.common.seeding import stream
from goal.data.sets import DATASETS
from goal.methods.goal import GoalSettings
from goal.methods.registry import METHODS
from goal.settings.plain import flatten, merge, parse_assignments, read_settings
from goal.settings.recipes import find_recipe, shipped_recipes
from goal.settings.settings import Settings, compose, difference
from goal.storage.yaml_files import parse_yaml


def asked(*assignments: str) -> Settings:
    return compose(parse_assignments(assignments))


class Wheel(Section):
    spokes: int = Field(default=32, gt=0)
    size: float = 28.0


class Bicycle(Section):
    maker: str
    front: Wheel = Wheel()
    gears: int | None = None


# -- one section ----------------------------------------------------------------------------


def test_a_section_is_parsed_and_frozen() -> None:
    bicycle = Bicycle.parse({"maker": "a", "front": {"size": 26}})
    assert bicycle.front.size == 26 and bicycle.front.spokes == 32
    with pytest.raises(ValidationError, match="frozen"):
        bicycle.front.spokes = 3  # type: ignore[misc]


def test_all_mistakes_are_named_at_once() -> None:
    values = {"front": {"spoke": 3, "size": "big"}, "gear": 7, "gears": True}
    with pytest.raises(GoalError) as caught:
        Bicycle.parse(values, "bicycle")
    head, *lines = str(caught.value).splitlines()
    assert head == "Bad bicycle:"
    assert sorted(line.removeprefix("  - ").split(":")[0] for line in lines) == [
        "front.size",
        "front.spoke",
        "gear",
        "gears",
        "maker",
    ]
    text = str(caught.value)
    assert "front.spoke: no such key. Did you mean 'spokes'? Keys here: spokes, size." in text
    assert "gear: no such key. Did you mean 'gears'? Keys here: maker, front, gears." in text
    assert "(given: 'big')" in text and "(given: True)" in text


def test_a_default_that_breaks_its_own_rule_is_an_error() -> None:
    class Broken(Section):
        spokes: int = Field(default=-1, gt=0)

    with pytest.raises(GoalError, match="spokes"):
        Broken.parse({})


# -- all settings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("sed=1", "sed: no such key. Did you mean 'seed'?"),
        ("trainning.base_lr=1", "trainning: no such key. Did you mean 'training'?"),
        ("training.bass_lr=0.1", "training.bass_lr: no such key. Did you mean 'base_lr'?"),
        ("protocol.stage=2", "protocol.stage: no such key. Did you mean 'stages'?"),
        ("method.alhpa=0.5", "alhpa: no such key. Did you mean 'alpha'?"),
        ("data.name=cifar10", "Unknown dataset 'cifar10'. Did you mean 'cifar100'?"),
        ("method.name=gaol", "Unknown method 'gaol'. Did you mean 'goal'?"),
        ("method.name=7", "Unknown method '7'."),
    ],
)
def test_a_typo_names_the_nearest_key(assignment: str, complaint: str) -> None:
    with pytest.raises(GoalError) as caught:
        asked(assignment)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "key"),
    [
        ("seed='3'", "seed"),
        ("seed=1.5", "seed"),
        ("seed=true", "seed"),
        ("seed=-1", "seed"),
        ("device=3", "device"),
        ("training.base_lr='0.1'", "training.base_lr"),
        ("training.base_lr=.nan", "training.base_lr"),
        ("training.base_lr=1e999", "training.base_lr"),
        ("training.momentum=1.0", "training.momentum"),
        ("training.selection=first", "training.selection"),
        ("training=3", "training"),
        ("training=", "training"),
        ("data=digits", "data"),
        ("method=goal", "method"),
        ("method.alpha=1.5", "alpha"),
        ("method.head_init=guesswork", "head_init"),
        ("transform.image_size=300", "transform"),
    ],
)
def test_a_wrong_value_names_its_key(assignment: str, key: str) -> None:
    with pytest.raises(GoalError, match=rf"\b{key}\b"):
        asked(assignment)


def test_whole_settings_are_frozen() -> None:
    settings = compose()
    with pytest.raises(ValidationError, match="frozen"):
        settings.seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.training.base_lr = 3.0  # type: ignore[misc]


def test_layers_in_their_order() -> None:
    recipe: dict[str, Any] = {
        "data": {"name": "cifar100"},
        "protocol": {"base_classes": 20},
        "training": {"batch_size": 32, "base_epochs": 7},
    }
    alone = compose({"data": {"name": "cifar100"}})
    assert (alone.protocol.base_classes, alone.protocol.stages) == (50, 5)  # the dataset's
    with_recipe = compose(recipe)
    assert (with_recipe.protocol.base_classes, with_recipe.protocol.stages) == (20, 5)
    whole = compose(recipe, parse_assignments(["training.batch_size=8", "protocol.stages=2"]))
    assert (whole.protocol.base_classes, whole.protocol.stages) == (20, 2)
    assert (whole.training.batch_size, whole.training.base_epochs) == (8, 7)
    moved = compose(recipe, parse_assignments(["data.name=digits"]))
    assert moved.protocol.base_classes == 20  # asked for
    assert moved.protocol.stages == 3 and moved.transform.image_size == 16  # of digits


def test_what_the_literal_preset_stands_for() -> None:
    literal = asked("method.name=goal-literal").method
    assert isinstance(literal, GoalSettings) and literal.name == "goal-literal"
    assert (literal.confidence, literal.entropy_form) == ("global", "global")
    assert (literal.replay_weight, literal.distillation_weight) == (0, 0)
    assert (literal.alpha, literal.alignment_weight, literal.sup_con_weight) == (0.7, 0.7, 0.35)
    changed = asked("method.name=goal-literal", "method.replay_weight=0.5").method
    assert isinstance(changed, GoalSettings)
    assert (changed.replay_weight, changed.distillation_weight) == (0.5, 0)


@pytest.mark.parametrize("name", METHODS)
def test_settings_survive_being_written(name: str) -> None:
    settings = asked(f"method.name={name}", "seed=4", "training.weight_decay=1e-7")
    for text in (json.dumps(settings.plain()), yaml.safe_dump(settings.plain())):
        again = compose(parse_yaml(text, "test"))
        assert again == settings and type(again.method) is type(settings.method)
        assert again.hash() == settings.hash()
        assert difference(settings, again) == []


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


# -- identity -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignment",
    [
        "data.root=/elsewhere",
        "data.download=true",
        "bank.folder=/elsewhere",
        "bank.budget_gb=3",
        "training.checkpoint_seconds=1",
    ],
)
def test_places_and_intervals_are_not_identity(assignment: str) -> None:
    changed = asked(assignment)
    assert changed != compose()
    assert changed.identity() == compose().identity() and changed.hash() == compose().hash()
    assert difference(compose(), changed) == []


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("seed=1", "seed: 0 in the folder, 1 asked for"),
        ("method.alpha=0.5", "method.alpha: 0.7 in the folder, 0.5 asked for"),
        ("training.base_lr=0.2", "training.base_lr: 0.1 in the folder, 0.2 asked for"),
        ("bank.views=fresh", "bank.views: 4 in the folder, 'fresh' asked for"),
        ("protocol.new_per_stage=1", "protocol.new_per_stage: None in the folder, 1 asked for"),
        ("transform.flip=true", "transform.flip: False in the folder, True asked for"),
    ],
)
def test_whatever_changes_the_result_changes_the_hash(assignment: str, line: str) -> None:
    changed = asked(assignment)
    assert changed.hash() != compose().hash()
    assert difference(compose(), changed) == [line]


def test_difference_between_methods_names_keys_that_only_one_has() -> None:
    lines = difference(asked("method.name=goal"), asked("method.name=kmeans"))
    keys = {line.split(":")[0] for line in lines}
    assert {"method.name", "method.alpha", "method.restarts"} <= keys
    assert all(key.startswith("method.") for key in keys)


# -- trees and texts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-2E+3", -2000.0),
        ("1.5e3", 1500.0),
        ("3.e-2", 0.03),
        ("1e5", 1e5),
        ("1.5", 1.5),
        ("12", 12),
        ("[1e-3, 2]", [1e-3, 2]),
        ("null", None),
        ("false", False),
        ("e5", "e5"),
        ("'1e-4'", "1e-4"),
        ("1e-4x", "1e-4x"),
        ("7e3-run", "7e3-run"),
        ("12e4f0a1", "12e4f0a1"),
    ],
)
def test_values_are_read_as_everyone_expects(text: str, value: Any) -> None:
    result = parse_yaml(text, "test")
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(
    "text", ["{a: 1", "a: b: c", "!!python/object/apply:os.getcwd []", "2024-13-45", "\x00"]
)
def test_bad_yaml_says_where(text: str) -> None:
    with pytest.raises(GoalError, match=r"^here\.yaml is not valid YAML: "):
        parse_yaml(text, "here.yaml")


def test_assignments_become_a_tree() -> None:
    texts = [
        "seed=1",
        "training.base_lr=1e-2",
        "data.root=/a=b",
        "training.base_epochs=2",
        "seed=5",
    ]
    assert parse_assignments(texts) == {
        "seed": 5,  # the last one counts
        "training": {"base_lr": 0.01, "base_epochs": 2},
        "data": {"root": "/a=b"},
    }
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("text", ["seed", "", "=3", ".seed=3", "training.=3", "a..b=3"])
def test_a_bad_assignment_is_quoted(text: str) -> None:
    with pytest.raises(GoalError, match=r"write it as key\.sub=value") as caught:
        parse_assignments([text])
    assert f"--set {text!r}" in str(caught.value)


def test_a_bad_value_in_an_assignment_is_quoted() -> None:
    with pytest.raises(GoalError, match=r"^--set training.base_lr=\[1 is not valid YAML"):
        parse_assignments(["training.base_lr=[1"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"- a\n", "must hold sections with keys; it holds list"),
        (b"", "must hold sections with keys; it holds NoneType"),
        (b"\xff\xfe\xfa", "Cannot read the settings file"),
        (b"a: [", "is not valid YAML"),
    ],
)
def test_a_bad_settings_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(GoalError, match=complaint) as caught:
        read_settings(path)
    assert str(path) in str(caught.value)
    with pytest.raises(GoalError, match="Cannot read the settings file"):
        read_settings(tmp_path / "missing.yaml")


names = st.sampled_from("abc")
trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1), max_leaves=8
)
mappings = st.dictionaries(names, trees)


def walk(tree: Mapping[str, Any], *path: str) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        found.update(walk(value, *path, key) if isinstance(value, dict) else {(*path, key): value})
    return found


@given(mappings, mappings)
def test_merge_keeps_the_upper_value_wherever_both_have_one(
    under: dict[str, Any], over: dict[str, Any]
) -> None:
    before = json.dumps([under, over])
    merged = walk(merge(under, over))
    above = walk(over)

    def hidden(path: tuple[str, ...]) -> bool:
        """Whether something above lies at, over or below the place."""
        return any(path[: len(p)] == p or p[: len(path)] == path for p in above)

    rest = {path: value for path, value in walk(under).items() if not hidden(path)}
    assert merged == {**rest, **above}
    assert json.dumps([under, over]) == before  # neither is changed
    assert flatten(under) == {".".join(path): value for path, value in walk(under).items()}


def test_suggestions() -> None:
    assert did_you_mean("stges", ["stages", "seed"]) == " Did you mean 'stages'?"
    assert did_you_mean("zzz", ["stages", "seed"]) == ""
    assert pick({"a": 1, "b": 2}, "b", "thing") == 2
    with pytest.raises(GoalError, match=r"^Unknown thing 'zzz'\. Choose one of: a, b\.$"):
        pick({"b": 2, "a": 1}, "zzz", "thing")


# -- streams --------------------------------------------------------------------------------


def numbers(seed: int, *parts: str | int) -> tuple[float, ...]:
    return tuple(torch.rand(4, generator=stream(seed, *parts)).tolist())


def test_same_names_same_numbers_and_other_names_other_numbers() -> None:
    assert numbers(0, "stage", 1) == numbers(0, "stage", 1)
    keys: list[tuple[Any, ...]] = [(seed, "stage", t) for seed in range(20) for t in range(20)]
    keys += [(0,), (0, "stage"), (0, "method"), (0, 1, "stage"), (1, 0, "stage"), (0, "", "stage")]
    keys += [(0, "sta", "ge"), (0, "stage1"), (0, "stage/1"), (10, "stage", 11, 0)]
    assert len({numbers(*key) for key in keys}) == len(keys)


def test_no_global_generator_is_touched_or_asked() -> None:
    before = (torch.get_rng_state(), random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    first = numbers(3, "a")
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    torch.manual_seed(99)
    assert numbers(3, "a") == first
    torch.set_rng_state(before[0])


@pytest.mark.parametrize("dataset", [name for name in DATASETS.shipped if name != "folder"])
def test_every_method_has_a_recipe_for_every_benchmark(dataset: str) -> None:
    missing = [name for name in METHODS.shipped if f"{dataset}/{name}" not in shipped_recipes()]
    assert missing == []
