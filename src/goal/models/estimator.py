"""`Goal`: category discovery as a scikit-learn-style estimator.

    model = Goal(backbone="facebook/dino-vits16").fit(images, labels)
    model.discover(more_images, n_new="auto")
    model.predict(new_images)

Images are paths, Pillow images, arrays ``(N, H, W[, C])`` or tensors ``(N[, C], H, W)``.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.own_images import gather
from goal.models.classes import KnownClass
from goal.models.model import AUTO, Model
from goal.models.settings import DEFAULT_MODEL_METHOD, model_settings
from goal.models.store import Store


class Goal(BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps discovering classes in unlabelled images.

    Args:
        method: Method, see ``goal list methods``.
        backbone: Hub id, transformers folder, DINO ``.pth`` file, or ``digits-vit``.
        random_state: Seed; the same seed gives the same model.
        device: Where to compute: cpu, cuda, ...
        settings: Any other settings, as in recipes: ``{"training": {"stage_epochs": 10}}``.
        reporter: Told how far long work has come; silent by default.

    Attributes:
        classes_: Names of the classes, in the order of `predict_proba`'s columns.
        class_ids_: Their ids, which never change.
        n_stages_: Unlabelled stages learned so far.
        n_features_out_: Width of `transform`'s features.
        skipped_: Images that the last call could not read, and why.
        model_: The model behind it, `goal.models.model.Model`, in a folder of its own.

    To keep a fitted one, use `save` and `load`; it cannot be pickled.
    """

    def __init__(
        self,
        method: str = DEFAULT_MODEL_METHOD,
        backbone: str = "facebook/dino-vitb16",
        random_state: int = 0,
        device: str = "cpu",
        settings: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.random_state = random_state
        self.device = device
        self.settings = settings
        self.reporter = reporter

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, images: Any, labels: Sequence[Any] | npt.NDArray[Any]) -> Self:
        """Learn labelled images; whatever was learned before is forgotten.

        Args:
            images: Images.
            labels: One label each, numbers or texts; as texts they name the classes.
        """
        given = gather(images, self._reporter())
        texts = np.array([str(label) for label in np.asarray(labels).tolist()])
        total = len(given) + len(given.skipped)
        if len(texts) != total:
            raise GoalError(f"{total} images need as many labels; given: {len(texts)}.")
        names, numbers = np.unique(texts[given.kept], return_inverse=True)
        settings = model_settings(
            self.method, self.backbone, self.random_state, self.device, self.settings
        )
        folder = TemporaryDirectory(prefix="goal-")
        model = Model(Path(folder.name), self._reporter())
        model.fit(given, numbers.astype(np.int64), names.tolist(), settings)
        self._take(model, folder)
        return self

    def discover(self, images: Any, n_new: int | str = AUTO) -> Self:
        """Learn unlabelled images as a new stage, with so many new classes.

        With ``auto`` their number is estimated; if it is none, nothing is added.
        """
        check_is_fitted(self)
        given = gather(images, self._reporter())
        self.model_.discover(given, n_new)
        self.skipped_ = self.model_.skipped
        return self

    # -- looking ----------------------------------------------------------------------------------

    def predict(self, images: Any) -> npt.NDArray[np.str_]:
        """Class name of each image."""
        best = self.predict_proba(images).argmax(axis=1)
        names: npt.NDArray[np.str_] = self.classes_[best]
        return names

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, (N, classes)."""
        return self._look(images)[1]

    def transform(self, images: Any) -> npt.NDArray[np.float64]:
        """Unit-length feature of each image, (N, D)."""
        return self._look(images)[0]

    def _look(self, images: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        check_is_fitted(self)
        given = gather(images, self._reporter())
        features, probabilities, kept = self.model_.look(given)
        if kept.skipped:
            name, reason = kept.skipped[0]
            raise GoalError(
                f"{len(kept.skipped)} images cannot be read (first: {name}: {reason}). Leave them "
                "out; `goal predict` skips and lists them."
            )
        return features.double().numpy(), probabilities.double().numpy()

    # -- classes ----------------------------------------------------------------------------------

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """Names of the classes; merged ones count once."""
        return np.array([known.name for known in self._known()], dtype=np.str_)

    @property
    def class_ids_(self) -> npt.NDArray[np.int64]:
        """Ids of the classes."""
        return np.array([known.id for known in self._known()], dtype=np.int64)

    @property
    def n_stages_(self) -> int:
        """Unlabelled stages learned so far."""
        return self._fitted().records[-1].index

    @property
    def n_features_out_(self) -> int:
        """Width of the features."""
        return int(self._fitted().learner().counter.means.shape[1])

    def rename(self, name: str, to: str) -> Self:
        """Call a class by another name."""
        self._fitted().rename(name, to)
        return self

    def merge(self, keep: str, *others: str) -> Self:
        """Say that other classes are the first one."""
        self._fitted().merge(keep, others)
        return self

    def undo(self) -> Self:
        """Take back the last stage."""
        self._fitted().undo()
        return self

    def _known(self) -> list[KnownClass]:
        return self._fitted().roster.classes()

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            raise AttributeError("this Goal is not fitted yet")
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    # -- files ------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Self:
        """Write the model to a new folder, on which the commands of `goal` work, too."""
        check_is_fitted(self)
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise GoalError(f"{file_name(target)} is not empty. Choose another folder.")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(self.model_.store.folder, draft, ignore=shutil.ignore_patterns(".*"))
        draft.replace(target)
        return self

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        """Read a model from a folder; what is learned afterwards does not change that folder."""
        Store(Path(folder)).require()
        copy = TemporaryDirectory(prefix="goal-")
        shutil.copytree(folder, copy.name, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
        model = Model(Path(copy.name), device=device)
        settings = model.settings
        loaded = cls(settings.method.name, settings.backbone.name, settings.seed, device)
        plain = settings.plain()
        loaded.settings = {
            key: plain[key] for key in ("transform", "backbone", "bank", "training", "method")
        }
        loaded._take(model, copy)
        return loaded

    def _take(self, model: Model, folder: "TemporaryDirectory[str]") -> None:
        self.model_ = model
        self._folder = folder  # deleted along with this object
        self.skipped_ = model.skipped

    def _reporter(self) -> Reporter:
        return self.reporter or Reporter()
