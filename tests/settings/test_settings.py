"""Settings are strict, frozen, layered and hashed, and their errors name the key."""

import json
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from goal.common.errors import GoalError
from goal.methods.goal import GoalSettings
from goal.methods.registry import METHODS
from goal.settings.plain import parse_assignments
from goal.settings.settings import Settings, compose, difference
from goal.storage.yaml_files import parse_yaml


def asked(*assignments: str) -> Settings:
    return compose(parse_assignments(assignments))


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
