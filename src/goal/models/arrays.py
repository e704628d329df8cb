"""`GoalPlus`: category discovery on arrays of features, scikit-learn-style.

    model = GoalPlus().fit(features, labels)
    model.discover(more_features, n_new="auto")
    model.predict(new_features)

Features are the outputs of any frozen network, one row each: of images, of texts, of sounds.
"""

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from goal.backbone.tokens import TokenSource
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.features.origin import GIVEN
from goal.features.source import FeatureSource, FeatureTail, as_tokens
from goal.learning.learner import Learner, room_for
from goal.methods.base import LabelledStage, Stage
from goal.models.labels import with_unknown
from goal.models.requests import refusal
from goal.models.settings import model_settings

AUTO = "auto"
_BATCH = 8192


class GoalPlus(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps discovering classes among unlabelled features (GOAL+).

    Args:
        metric: ``cosine`` if only the direction of a feature matters, as with embeddings of
            networks; ``euclidean`` if its length does, too.
        alignment: ``none``, or ``analytic`` to let the vertices of a simplex decide as well.
        random_state: Seed; the same seed gives the same model.
        unknown: Share of known rows that `predict` may say to be of no class: -1 where labels are
            whole numbers, else ``unknown``. None for none.

    Attributes:
        classes_: Labels of the classes: those of `fit`, then those discovered. Discovered classes
            are numbers after the largest where labels are whole numbers, else ``new-1``, ...
        labels_: Class of each row of the last `fit` or `discover`.
        n_stages_: Calls of `discover` that found something.
        n_features_in_: Width of the features.
    """

    def __init__(
        self,
        metric: Literal["cosine", "euclidean"] = "cosine",
        alignment: Literal["none", "analytic"] = "none",
        random_state: int = 0,
        unknown: float | None = None,
    ) -> None:
        self.metric = metric
        self.alignment = alignment
        self.random_state = random_state
        self.unknown = unknown

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Learn labelled features; whatever was learned before is forgotten."""
        refusal(self.unknown)
        features, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        count = len(self.classes_)
        self._learner = self._untrained(count)
        source = FeatureSource(features)
        stage = LabelledStage(0, 0, count, 0, source, torch.from_numpy(numbers.astype(np.int64)))
        self._learn(stage)
        self.n_stages_ = 0
        self.labels_ = labels
        return self

    def discover(self, X: Any, n_new: int | str = AUTO) -> Self:
        """Learn unlabelled features as a new stage, with so many new classes.

        With ``auto`` their number is estimated; if it is none, nothing is added.
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float32, reset=False)
        source, index = self._learner.once(FeatureSource(features)), self.n_stages_ + 1
        count = self._how_many(source, index, n_new)
        if count:
            self._learn(Stage(index, len(self.classes_), count, 0, source))
            self.classes_ = np.concatenate([self.classes_, self._fresh_labels(count)])
            self.n_stages_ = index
        self.labels_ = self.predict(features)
        return self

    def _how_many(self, source: TokenSource, index: int, n_new: int | str) -> int:
        if n_new == AUTO:
            return self._learner.count_new(source, index).count
        if isinstance(n_new, bool) or not isinstance(n_new, int | np.integer) or n_new < 1:
            raise GoalError(f"n_new is a whole number from 1 on, or 'auto'; given: {n_new!r}.")
        if n_new > len(source):
            raise GoalError(f"{len(source)} features cannot hold {n_new} new classes.")
        return int(n_new)

    def _learn(self, stage: Stage) -> None:
        self._learner.learn(stage, [])
        self._learner.note_classes(stage)

    def _untrained(self, count: int) -> Learner:
        method = {"alignment": self.alignment, "unit_length": self.metric == "cosine"}
        settings = model_settings("goal-plus", seed=self.random_state, settings={"method": method})
        width = int(self.n_features_in_)
        room = room_for(settings, count)
        device = torch.device("cpu")
        return Learner(settings, FeatureTail(width), _Given(), room, device, Reporter())

    def _fresh_labels(self, count: int) -> npt.NDArray[Any]:
        """Labels of new classes, in the manner of the given ones."""
        if self.classes_.dtype.kind in "iu":
            first = int(self.classes_.max()) + 1
            return np.arange(first, first + count).astype(self.classes_.dtype)
        taken, number = set(self.classes_.tolist()), 0
        found: list[str] = []
        while len(found) < count:
            number += 1
            if f"new-{number}" not in taken:
                found.append(f"new-{number}")
        return np.array(found, dtype=object if self.classes_.dtype.kind == "O" else None)

    # -- looking ----------------------------------------------------------------------------------

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Class of each row."""
        parts = [(scores.argmax(dim=1), self._strange(scores)) for scores in self._scores(X)]
        best = np.concatenate([one.numpy() for one, _ in parts])
        share = refusal(self.unknown)
        if share is None:
            return np.asarray(self.classes_[best])
        strange = np.concatenate([one.numpy() for _, one in parts])
        return with_unknown(self.classes_[best], strange < share)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, (N, classes)."""
        parts = [
            self._learner.method.probabilities(scores).double().numpy()
            for scores in self._scores(X)
        ]
        return np.concatenate(parts)

    def strangeness(self, X: Any) -> npt.NDArray[np.float64]:
        """Share of known rows that are as far from all classes as each row, or farther, (N,)."""
        return np.concatenate([self._strange(scores).numpy() for scores in self._scores(X)])

    def _strange(self, scores: Tensor) -> Tensor:
        found = self._learner.method.strangeness(scores)
        assert found is not None
        return found.double()

    def _scores(self, X: Any) -> Iterator[Tensor]:
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float32, reset=False)
        for start in range(0, len(features), _BATCH):
            yield self._learner.look(as_tokens(features[start : start + _BATCH]))[1]


class _Given:
    """There is no backbone: features come as they are."""

    fingerprint = GIVEN

    def open(self, *_: Any) -> Any:
        """Refuse images."""
        raise GoalError("This model takes features, not images.")
