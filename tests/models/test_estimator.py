"""`Goal` as a scikit-learn-style estimator."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from goal import Goal
from goal.common.errors import GoalError
from goal.models.model import Model
from goal.models.settings import model_settings
from goal.settings.recipes import read_recipe
from tests.models.digit_folders import QUICK, held, screened, write_digits

BASE = held(dict.fromkeys(range(4), range(10)))
WEEK = held({0: range(10, 13), 4: range(12)})


def make() -> Goal:
    return Goal(method="kmeans", backbone="digits-vit", random_state=3, settings=QUICK)


@pytest.fixture(scope="module")
def fitted() -> Goal:
    return make().fit(*BASE).discover(WEEK[0], n_new=1)


def test_importing_the_package_stays_light() -> None:
    script = "import sys, goal; print('torch' in sys.modules, goal.Goal.__name__)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False Goal\n"
    with pytest.raises(ImportError):
        from goal import Gaol  # noqa: F401


def test_the_constructor_only_stores() -> None:
    settings = {"training": {"nonsense": 1}}
    goal = Goal(method="no such", backbone="nowhere", settings=settings)
    assert goal.get_params()["settings"] is settings
    twin = clone(goal.set_params(random_state=5))
    assert twin.random_state == 5 and twin.method == "no such"
    with pytest.raises(NotFittedError):
        goal.predict(BASE[0])
    assert not hasattr(goal, "classes_") and not hasattr(goal, "n_stages_")


def test_shapes_and_agreement(fitted: Goal) -> None:
    assert fitted.classes_.tolist() == [0, 1, 2, 3, 4]
    assert fitted.class_names_.tolist() == ["0", "1", "2", "3", "new-1"]
    assert fitted.class_ids_.tolist() == [0, 1, 2, 3, 4] and fitted.n_stages_ == 1
    probabilities = fitted.predict_proba(WEEK[0])
    assert probabilities.shape == (15, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    names = fitted.classes_[probabilities.argmax(axis=1)]
    assert fitted.predict(WEEK[0]).tolist() == names.tolist()
    features = fitted.transform(WEEK[0])
    assert features.shape == (15, fitted.n_features_out_)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)


def test_it_learns_something(fitted: Goal) -> None:
    images, labels = held(dict.fromkeys(range(4), range(20, 30)))
    right = fitted.predict(images) == labels
    assert right.mean() > 0.7 and fitted.score(images, labels) == right.mean()
    fours = fitted.predict(held({4: range(20, 30)})[0])
    assert (fours == 4).mean() > 0.7


def test_the_same_seed_gives_the_same_model_and_refitting_forgets(fitted: Goal) -> None:
    twin = make().fit(*BASE).discover(WEEK[0], n_new=1)
    np.testing.assert_array_equal(twin.predict_proba(WEEK[0]), fitted.predict_proba(WEEK[0]))
    twin.fit(*BASE)
    assert twin.n_stages_ == 0 and len(twin.classes_) == 4


def test_save_and_load_and_the_commands_understand_each_other(fitted: Goal, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = Goal.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(WEEK[0]), fitted.predict_proba(WEEK[0]))
    assert (loaded.method, loaded.backbone, loaded.random_state) == ("kmeans", "digits-vit", 3)
    loaded.merge("3", "new-1").rename("3", "three")
    assert loaded.classes_.tolist() == ["0", "1", "2", "three"]
    assert loaded.predict_proba(WEEK[0]).shape == (15, 4)
    assert loaded.undo(stage=True).n_stages_ == 0
    on_disk = Model(tmp_path / "model")
    assert on_disk.records[-1].index == 1 and on_disk.roster.names[3] == "3"
    folder = write_digits(tmp_path / "png", {4: range(20, 24)})
    assert len(on_disk.predict(screened(folder)).ids) == 4
    with pytest.raises(GoalError, match="not empty"):
        fitted.save(tmp_path / "model")
    with pytest.raises(GoalError, match="holds no model"):
        Goal.load(tmp_path / "png")


def test_labels_must_match_and_bad_paths_are_handled(fitted: Goal, tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="40 images need as many labels; given: 39"):
        make().fit(BASE[0], BASE[1][1:])
    folder = write_digits(tmp_path / "png", {0: range(4), 1: range(4)})
    paths = [*sorted(folder.iterdir()), tmp_path / "none.png"]
    goal = make().fit(paths, ["zero"] * 4 + ["one"] * 4 + ["lost"])
    assert goal.classes_.tolist() == ["one", "zero"]
    assert [name for name, _ in goal.skipped_] == [str(tmp_path / "none.png")]
    assert goal.predict(paths[:1]).tolist() == ["zero"]
    with pytest.raises(GoalError, match=r"1 images cannot be read \(first: .*none\.png"):
        goal.predict(paths)


def test_models_use_the_small_dinov2_and_experiments_the_papers_backbone() -> None:
    assert Goal().backbone == model_settings().backbone.name == "facebook/dinov2-small"
    assert read_recipe("cifar100/goal")["backbone"]["name"] == "facebook/dino-vitb16"
