"""`Goal`: category discovery as a scikit-learn-style estimator.

    model = Goal(backbone="facebook/dino-vits16").fit(images, labels)
    model.discover(more_images, n_new="auto")
    model.predict(new_images)

Images are paths, Pillow images, arrays ``(N, H, W[, C])`` or tensors ``(N[, C], H, W)``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from goal.backbone.names import DEFAULT_EMBEDDER
from goal.common.errors import GoalError
from goal.common.escaping import file_name
from goal.common.progress import Reporter
from goal.data.own_images import gather
from goal.models.classes import KnownClass
from goal.models.hub import pull
from goal.models.labels import (
    class_labels,
    name_of,
    stage_classes,
    whole_numbers,
    with_unknown,
)
from goal.models.model import AUTO, Model
from goal.models.places import copy_model, model_files
from goal.models.predictions import NONE
from goal.models.requests import refusal
from goal.models.settings import DEFAULT_MODEL_METHOD, model_settings
from goal.models.store import Store


class Goal(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps discovering classes in unlabelled images.

    Args:
        method: Method, see ``goal list methods``.
        backbone: Hub id, transformers folder, DINO ``.pth`` file, or ``digits-vit``
            (docs/backbones.md compares some).
        random_state: Seed; the same seed gives the same model.
        device: Where to compute: cpu, cuda, ...
        settings: Any other settings, as in recipes: ``{"training": {"stage_epochs": 10}}``.
        reporter: Told how far long work has come; silent by default.
        download: Whether a backbone that is not on this machine may be fetched.
        unknown: Share of known images that `predict` and `discover` may say to be of no class: -1
            where labels are whole numbers, else ``unknown``. None for none.

    Attributes:
        classes_: The classes, in the order of `predict_proba`'s columns and as `predict` answers.
        class_names_: Their names.
        class_ids_: Their ids, which never change.
        labels_: Class of each readable image of the last stage, in the order they were given.
        n_stages_: Unlabelled stages learned so far.
        n_features_out_: Width of `transform`'s features.
        skipped_: Images that the last call could not read, and why.
        model_: The model behind it, `goal.models.model.Model`, in a folder of its own.

    **Classes are numbers if the labels were**, so that `predict` compares with ``y``: a
    discovered class gets a number above those of the labels, and one that is renamed to a number
    gets that number. They are texts, their names, if the labels were texts, and as soon as a
    class is renamed to a text. (Floats that are whole numbers count as such.)

    A pickled or copied one has a model folder of its own. The usual way to keep one, which the
    commands of `goal` understand, is `save` and `load`.
    """

    def __init__(
        self,
        method: str = DEFAULT_MODEL_METHOD,
        backbone: str = DEFAULT_EMBEDDER,
        random_state: int = 0,
        device: str = "cpu",
        settings: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
        download: bool = False,
        unknown: float | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.random_state = random_state
        self.device = device
        self.settings = settings
        self.reporter = reporter
        self.download = download
        self.unknown = unknown

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, images: Any, labels: Sequence[Any] | npt.NDArray[Any]) -> Self:
        """Learn labelled images; whatever was learned before is forgotten.

        Args:
            images: Images.
            labels: One label each, whole numbers or texts; as texts they name the classes.
        """
        given = gather(images, self._reporter())
        truth = whole_numbers(np.asarray(labels))
        total = len(given) + len(given.skipped)
        if len(truth) != total:
            raise GoalError(f"{total} images need as many labels; given: {len(truth)}.")
        values, numbers = np.unique(truth[given.kept], return_inverse=True)
        settings = model_settings(
            self.method, self.backbone, self.random_state, self.device, self.settings
        )
        folder = TemporaryDirectory(prefix="goal-")
        model = Model(Path(folder.name), self._reporter(), download=self.download)
        names = [str(value) for value in values.tolist()]
        model.fit(given, numbers.astype(np.int64), names, settings, truth.dtype.kind == "i")
        self._take(model, folder)
        return self

    def discover(self, images: Any, n_new: int | str = AUTO) -> Self:
        """Learn unlabelled images as a new stage, with so many new classes.

        With ``auto`` their number is estimated; if it is none, nothing is added.
        """
        check_is_fitted(self)
        given = gather(images, self._reporter())
        self.model_.discover(given, n_new, refusal(self.unknown))
        self.skipped_ = self.model_.skipped
        return self

    # -- looking ----------------------------------------------------------------------------------

    def predict(self, images: Any) -> npt.NDArray[Any]:
        """Class of each image, as in `classes_`."""
        share = refusal(self.unknown)
        _, probabilities, strange = self._look(images)
        found: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return found if share is None else with_unknown(found, strange < share)

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, (N, classes)."""
        return self._look(images)[1]

    def strangeness(self, images: Any) -> npt.NDArray[np.float64]:
        """Share of known images that are as far from all classes as each, or farther, (N,).

        Methods that cannot tell give 1.
        """
        return self._look(images)[2]

    def transform(self, images: Any) -> npt.NDArray[np.float64]:
        """Unit-length feature of each image, (N, D)."""
        return self._look(images)[0]

    def _look(
        self, images: Any
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        check_is_fitted(self)
        given = gather(images, self._reporter())
        features, probabilities, kept, told = self.model_.look_closely(given)
        if kept.skipped:
            name, reason = kept.skipped[0]
            raise GoalError(
                f"{len(kept.skipped)} images cannot be read (first: {name}: {reason}). Leave them "
                "out; `goal predict` skips and lists them."
            )
        strange = np.ones(len(features)) if told is None else told.double().numpy()
        return features.double().numpy(), probabilities.double().numpy(), strange

    # -- classes ----------------------------------------------------------------------------------

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, numbers or names; merged ones count once."""
        return class_labels(self._fitted().roster, self._fitted().records[0])

    @property
    def class_names_(self) -> npt.NDArray[np.str_]:
        """Names of the classes."""
        return np.array([known.name for known in self._known()], dtype=np.str_)

    @property
    def labels_(self) -> npt.NDArray[Any]:
        """Class of each readable image of the last stage, under today's corrections."""
        model = self._fitted()
        owner, ids = model.roster.owner, self.class_ids_.tolist()
        stored = stage_classes(model.store, model.records)
        labels: npt.NDArray[Any] = self.classes_[
            [0 if id == NONE else ids.index(owner[id]) for id in stored]
        ]
        return with_unknown(labels, np.array(stored) == NONE)

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

    def rename(self, name: str | int, to: str | int) -> Self:
        """Call a class by another name."""
        self._fitted().rename(self._named(name), str(to))
        return self

    def merge(self, keep: str | int, *others: str | int) -> Self:
        """Say that other classes are the first one."""
        self._fitted().merge(self._named(keep), [self._named(other) for other in others])
        return self

    def unmerge(self, name: str | int) -> Self:
        """Let a merged class stand for itself again: its name, or the number that it had."""
        self._fitted().unmerge(self._named(name))
        return self

    def _named(self, given: str | int) -> str:
        """The name of a class that is given by name, or as `classes_` has or had it."""
        return name_of(self._fitted().roster, self._fitted().records, given)

    def undo(self, stage: bool = False) -> Self:
        """Take back the last action, or the last stage with the corrections of its classes."""
        self._fitted().undo(stage=stage)
        return self

    def redo(self) -> Self:
        """Do again what the last `undo` took back."""
        self._fitted().redo()
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
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as near:
            copy_model(self.model_.store.folder, Path(near) / "model")
            (Path(near) / "model").replace(target)
        return self

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "cpu",
        *,
        backbone: str | None = None,
        download: bool = False,
    ) -> Self:
        """Read a model from a folder; what is learned afterwards does not change that folder.

        Args:
            folder: The model folder.
            device: Where to compute.
            backbone: Where the backbone is now, if it is not where it was.
            download: Whether a backbone that is not on this machine may be fetched.
        """
        Store(Path(folder)).require()
        copy = TemporaryDirectory(prefix="goal-")
        copy_model(Path(folder), Path(copy.name))
        return cls._opened(copy, device, backbone, download)

    @classmethod
    def from_pretrained(
        cls,
        source: str,
        device: str = "cpu",
        *,
        backbone: str | None = None,
        download: bool = True,
    ) -> Self:
        """Read a model that `goal push` wrote.

        Args:
            source: ``user/name`` on the hub, or a folder.
            device: Where to compute.
            backbone: Where the backbone is, if it is no public one.
            download: Whether model and backbone may be fetched, if they are not on this machine.
        """
        folder = TemporaryDirectory(prefix="goal-")
        pull(source, Path(folder.name), download=download)
        return cls._opened(folder, device, backbone, download)

    @classmethod
    def _opened(
        cls,
        folder: "TemporaryDirectory[str]",
        device: str,
        backbone: str | None,
        download: bool,
    ) -> Self:
        model = Model(Path(folder.name), device=device, backbone=backbone, download=download)
        settings = model.settings
        name = backbone or settings.backbone.name
        loaded = cls(settings.method.name, name, settings.seed, device, download=download)
        plain = settings.plain()
        loaded.settings = {key: plain[key] for key in ("transform", "bank", "training", "method")}
        loaded.settings["backbone"] = {**plain["backbone"], "name": name}
        loaded._take(model, folder)
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        """Everything, with the model's files in place of its folder."""
        state = dict(super().__getstate__())
        if "model_" in state:
            model = state.pop("model_")
            state["_folder"] = (model_files(model.store.folder), model.moved_backbone)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the model's files to a folder of its own."""
        kept = state.pop("_folder", None)
        super().__setstate__(state)
        if kept is None:
            return
        files, moved = kept
        folder = TemporaryDirectory(prefix="goal-")
        for name, content in files.items():
            path = Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        skipped = self.skipped_
        model = Model(
            Path(folder.name),
            self._reporter(),
            self.device,
            backbone=moved,
            download=self.download,
        )
        self._take(model, folder)
        self.skipped_ = skipped

    def _take(self, model: Model, folder: "TemporaryDirectory[str]") -> None:
        self.model_ = model
        self._folder = folder  # deleted along with this object
        self.skipped_ = model.skipped

    def _reporter(self) -> Reporter:
        return self.reporter or Reporter()
