"""A model folder, opened to be asked about images."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from goal.backbone.features import Embedder
from goal.bank.bank import TokenBank
from goal.common.errors import GoalError
from goal.common.process import cpu_threads
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.distributed import usable
from goal.features.bank import FeatureBank
from goal.features.embed import origin_of
from goal.features.origin import GIVEN, Origin
from goal.features.source import FeatureTail, FeatureTrunk
from goal.learning.learner import Learner, learner_on_tokens, require_backbone, room_for
from goal.methods.base import Outputs
from goal.models.backbones import open_backbone, open_embedder
from goal.models.classes import Roster
from goal.models.facts import facts_of
from goal.models.folder import ModelFolder
from goal.models.history import History
from goal.models.looking import Seen, look_at, pooled, two_best
from goal.models.predictions import Predictions
from goal.models.requests import USUAL, can_refuse, refusal, require_share
from goal.models.resampling import CentreCut, plain_cut
from goal.models.rows import Rows, read_rows
from goal.models.store import StageRecord
from goal.models.teaching import Known, known_by, make_room, teach_learner
from goal.settings.plain import read_settings
from goal.settings.settings import Settings, compose


class OpenModel(ModelFolder):
    """A model folder, opened. The backbone is loaded by what needs it, and then kept."""

    def __init__(
        self,
        folder: Path,
        reporter: Reporter | None = None,
        device: str | None = None,
        *,
        backbone: str | None = None,
        download: bool = False,
        workers: int = 0,
    ) -> None:
        """Open a model folder, or a folder for a new one.

        Args:
            folder: The folder.
            reporter: Told how far the work has come.
            device: Where to compute, if not where the model was fitted.
            backbone: Where the backbone is now, if it is not where it was; it must be the same.
            download: Whether a backbone that is not on this machine may be fetched.
            workers: Actors of Ray that compute features; 0 computes in this process.
        """
        super().__init__(folder)
        self.reporter = reporter or Reporter()
        self._device = device
        self.moved_backbone = backbone
        self._download = download
        self._workers = workers
        self._learner: tuple[str, Learner] | None = None  # and the seal of the step it is of
        self._plain: Known | None = None  # what that step left, before any decision
        self._taught: tuple[int, ...] = ()  # the decisions that the learner knows
        self._counted = 0  # the means that it counts new classes beside
        self._listed: tuple[str, Rows] | None = None  # and the seal of the last step
        self.skipped: list[tuple[str, str]] = []  # by the last call, and why

    @cached_property
    def settings(self) -> Settings:
        """The settings it was fitted with."""
        self.store.require()
        settings = compose(read_settings(self.store.path(0) / "settings.yaml"))
        return settings.model_copy(update={"device": self._device or settings.device})

    def export(self, path: Path) -> None:
        """Write the model as one ONNX graph, with one column per class that is not merged."""
        from goal.models.export import export_onnx  # needs an extra

        roster, learner = self._opened()
        names = [roster.names[id] for id in roster.ids()]
        trunk, cut = _network(learner, self.settings)
        owner = [id if id in roster.ids() else None for id in roster.owner]
        export_onnx(trunk, learner.method, names, cut, path, owner)

    # -- predicting -------------------------------------------------------------------------------

    def predict(self, given: ImageSet, unknown: float | None = None) -> Predictions:
        """Class and confidence of each readable image; each depends on that image alone.

        Args:
            given: The images.
            unknown: Share of known images that may be said to be of no class; None for none.
        """
        with cpu_threads(self.settings.threads):
            roster, learner = self._opened()
            require_share(unknown, learner.method)
            lost: dict[int, str] = {}
            seen = list(self._reduced(look_at(learner, given, lost), learner, roster))
        found = Predictions.join(seen, given.without(lost), roster, roster.latest, unknown)
        return found.without_junk()

    def refusal(self, asked: str | float | None) -> float | None:
        """The share of known images that may come out as of no class: as asked, 0.01 by default.

        None, and so none of them, if that is asked for, or by default if the model cannot tell.
        """
        if asked is not None:
            return refusal(asked)
        return USUAL if can_refuse(self._current().method) else None

    def look(self, given: ImageSet) -> tuple[Tensor, Tensor, ImageSet]:
        """Unit features (N, D) and class probabilities (N, classes) of the readable images."""
        return self.look_closely(given)[:3]

    def look_closely(self, given: ImageSet) -> tuple[Tensor, Tensor, ImageSet, Tensor | None]:
        """The same, and how strange each image is, None if the method cannot tell."""
        features, probabilities, strange = [], [], []
        with cpu_threads(self.settings.threads):
            roster, learner = self._opened()
            lost: dict[int, str] = {}
            for outputs, scores in look_at(learner, given, lost):
                features.append(outputs.features.cpu())
                probabilities.append(_probabilities(learner, scores, roster, roster.ids()).cpu())
                strange.append(learner.method.strangeness(scores))
        if not features:
            raise GoalError("None of the images can be read.")
        told = [one.cpu() for one in strange if one is not None]
        kept = given.without(lost)
        return (
            torch.cat(features),
            torch.cat(probabilities),
            kept,
            torch.cat(told) if told else None,
        )

    def _reduced(
        self, seen: Iterator[tuple[Outputs, Tensor]], learner: Learner, roster: Roster
    ) -> Iterator[Seen]:
        """The best classes and how strange it is, batch by batch: all that is kept of an image."""
        for _, scores in seen:
            strange = learner.method.strangeness(scores)
            yield two_best(_probabilities(learner, scores, roster, roster.columns()), strange)

    # -- inside -----------------------------------------------------------------------------------

    def learner(self) -> Learner:
        """The model as its last step left it, for export and the like."""
        return self._current()

    def _build(
        self, settings: Settings, base_classes: int, origin: Origin | None = None
    ) -> Learner:
        """A learner, on features of the given origin if they are all that the method needs."""
        device, room = usable(settings.device), room_for(settings, base_classes)
        place = {} if self.moved_backbone is None else {"name": _place(self.moved_backbone)}
        wanted = settings.backbone.model_copy(update=place)
        if settings.method.frozen:
            bank = self._feature_bank(settings.model_copy(update={"backbone": wanted}), origin)
            tail = FeatureTail(bank.origin.width)
            return Learner(settings, tail, bank, room, device, self.reporter)
        backbone = open_backbone(wanted, download=self._download)
        return learner_on_tokens(settings, backbone, room, device, self.reporter)

    def _feature_bank(self, settings: Settings, origin: Origin | None) -> FeatureBank:
        def load() -> Embedder:
            size = (origin and origin.image_size) or settings.transform.image_size
            found = open_embedder(settings.backbone, size, download=self._download)
            return found.to(usable(settings.device))

        known = origin or origin_of(load())
        loader = None if known.backbone == GIVEN else load
        return FeatureBank(known, self.store.features, loader, self.reporter, self._workers)

    def _current(self) -> Learner:
        return self._opened()[1]

    def _opened(self) -> tuple[Roster, Learner]:
        """The classes and the method as last step and decisions left them, of the same state."""
        while True:
            records, history = self.records, self.store.history()
            roster = Roster(records, history.judgement)
            seal = self.store.seal(records[-1].step)
            if self._learner is None or self._learner[0] != seal:
                learner = self._restored(records)
                self._learner, self._plain, self._taught = (seal, learner), known_by(learner), ()
            learner = self._learner[1]
            self._teach(learner, records, roster, history)
            make_room(learner, len(roster.owner))
            now = self.store.history()
            if self.store.seal(self.records[-1].step) == seal and now.lines == history.lines:
                return roster, learner  # nobody changed it meanwhile

    def _teach(
        self, learner: Learner, records: list[StageRecord], roster: Roster, history: History
    ) -> None:
        """Let a learner know what was decided, unless it does."""
        decided = tuple(action.id for action in history.teaching)
        if self._plain is None or decided == self._taught:
            return
        rows, facts = self._rows(records), facts_of(history.teaching)
        with cpu_threads(self.settings.threads):
            teach_learner(learner, self._plain, self.store, records, roster, facts, rows)
        self._taught, self._counted = decided, len(learner.counter.means)

    def _rows(self, records: list[StageRecord]) -> Rows:
        """The images of all stages, read once."""
        seal = self.store.seal(records[-1].step)
        if self._listed is None or self._listed[0] != seal:
            self._listed = (seal, read_rows(self.store, records))
        return self._listed[1]

    def _restored(self, records: list[StageRecord]) -> Learner:
        learner = self._build(self.settings, records[0].num_seen, records[0].origin)
        require_backbone(learner, records[-1].trunk)
        state = self.store.state(records[-1].step)
        learner.restore(state.pop("method"))
        learner.counter.load_state_dict(state)
        return learner


def _place(backbone: str) -> str:
    """A backbone's name; a path from wherever the command was given."""
    path = Path(backbone)
    return str(path.resolve()) if path.exists() else backbone


def _probabilities(learner: Learner, scores: Tensor, roster: Roster, columns: list[int]) -> Tensor:
    """Probability of some classes that are not merged into another, (N, classes)."""
    found = learner.method.probabilities(pooled(scores, roster.owner, columns))
    if not bool(torch.isfinite(found).all()):
        raise GoalError(
            "The model gives no number for some images: its weights, or the backbone's, are "
            "damaged. `goal verify` compares the model with its checksums."
        )
    return found


def _network(learner: Learner, settings: Settings) -> tuple[nn.Module, CentreCut]:
    """The frozen network in front of the method, and how images are cut to size for it."""
    bank = learner.bank
    if isinstance(bank, FeatureBank):
        return FeatureTrunk(bank.embedder), CentreCut(bank.embedder.preprocessing)
    assert isinstance(bank, TokenBank)
    transform = settings.transform
    return bank.trunk, CentreCut(plain_cut(transform.image_size, transform.resize))
