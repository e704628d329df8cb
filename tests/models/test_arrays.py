"""GoalPlus on arrays: scikit-learn's own checks, and what it promises beyond them."""

import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from goal import GoalPlus
from goal.common.errors import GoalError

# Nothing is expected to fail; scikit-learn skips what a tag says does not apply.
EXPECTED: dict[str, str] = {}
Array = npt.NDArray[Any]


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [GoalPlus(), GoalPlus(metric="euclidean"), GoalPlus(alignment="analytic")],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learns_checks(estimator: GoalPlus, check: object) -> None:
    assert callable(check)
    check(estimator)


def blobs(classes: list[int], each: int, seed: int) -> tuple[Array, Array]:
    """Points around one direction per class, in 24 dimensions."""
    centres = 4 * np.random.default_rng(0).normal(size=(8, 24))
    rng = np.random.default_rng(seed)
    labels = np.repeat(classes, each)
    return centres[labels] + rng.normal(size=(len(labels), 24)), labels


def test_classes_are_found_and_numbered_after_the_largest() -> None:
    X, y = blobs([0, 1, 2], 40, 1)
    more, truth = blobs([0, 1, 2, 3, 4], 40, 2)
    model = GoalPlus().fit(X, y + 10)
    model.discover(more, n_new=2)
    assert model.classes_.tolist() == [10, 11, 12, 13, 14] and model.n_stages_ == 1
    known = truth < 3
    assert (model.labels_[known] == truth[known] + 10).all()
    for label in (3, 4):
        assert len(set(model.labels_[truth == label])) == 1
    model.discover(blobs([5], 40, 3)[0], n_new=1)
    assert model.classes_.tolist() == [10, 11, 12, 13, 14, 15]


def test_more_classes_than_dimensions_are_found_without_vertices_for_all() -> None:
    """There is room for 128 vertices, and for no more in six dimensions; classes are 140."""
    rng = np.random.default_rng(0)
    centres = 30 * rng.normal(size=(140, 6))
    X, y = np.repeat(centres[:20], 8, axis=0), np.repeat(np.arange(20), 8)
    model = GoalPlus(metric="euclidean", alignment="analytic")
    model.fit(X + rng.normal(size=X.shape), y)
    for first, last in ((20, 80), (80, 140)):
        more = np.repeat(centres[first:last], 10, axis=0)
        model.discover(more + rng.normal(size=more.shape), n_new=last - first)
    ledger = model._learner.ledger
    assert ledger is not None and model._learner.free is None
    assert len(model.classes_) == 140 > len(ledger.owners)


def test_the_example_with_texts_finds_the_modules(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "texts.py"))
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.removeprefix("agreement with the modules: ")) > 0.5


def test_text_labels_get_names_that_are_free() -> None:
    X, y = blobs([0, 1, 2], 40, 1)
    names = np.array(["cat", "new-1", "dog"])[y]
    model = GoalPlus().fit(X, names).discover(blobs([0, 3, 4], 40, 2)[0], n_new=2)
    assert model.classes_.tolist() == ["cat", "dog", "new-1", "new-2", "new-3"]
    assert set(model.labels_) == {"cat", "new-2", "new-3"}


def test_auto_counts_and_adds_nothing_where_nothing_is_new() -> None:
    X, y = blobs([0, 1, 2], 60, 1)
    model = GoalPlus().fit(X, y)
    assert model.discover(blobs([0, 1, 2], 40, 2)[0]).classes_.tolist() == [0, 1, 2]
    assert model.discover(blobs([0, 1, 2, 3, 4], 60, 3)[0]).classes_.tolist() == [0, 1, 2, 3, 4]


def test_it_pickles_and_copies_are_independent() -> None:
    X, y = blobs([0, 1, 2], 40, 1)
    model = GoalPlus().fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    copy.discover(blobs([3], 40, 2)[0], n_new=1)
    assert len(model.classes_) == 3 and len(copy.classes_) == 4
    assert np.array_equal(model.predict(X), y)


def test_the_same_seed_gives_the_same_model() -> None:
    X, y = blobs([0, 1, 2], 40, 1)
    more = blobs([0, 3, 4], 40, 2)[0]
    first, second = (GoalPlus(random_state=3).fit(X, y).discover(more) for _ in range(2))
    assert np.array_equal(first.predict_proba(more), second.predict_proba(more))


def test_it_works_behind_a_scaler_and_pca_and_in_cross_validation() -> None:
    """About as good as linear discriminant analysis, its nearest relative without discovery."""
    X, y = load_digits(return_X_y=True)
    ours, theirs = (
        cross_val_score(make_pipeline(StandardScaler(), PCA(30), last), X[:600], y[:600], cv=3)
        for last in (GoalPlus(), LinearDiscriminantAnalysis())
    )
    assert ours.mean() > theirs.mean() - 0.05


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "many", None])
def test_a_wrong_number_of_classes_is_a_clear_error(bad: object) -> None:
    model = GoalPlus().fit(*blobs([0, 1, 2], 20, 1))
    with pytest.raises(GoalError, match="n_new"):
        model.discover(blobs([3], 20, 2)[0], n_new=bad)  # type: ignore[arg-type]


def test_features_of_another_width_are_refused() -> None:
    model = GoalPlus().fit(*blobs([0, 1, 2], 20, 1))
    with pytest.raises(ValueError, match="24 features"):
        model.discover(np.zeros((5, 7)), n_new=1)
