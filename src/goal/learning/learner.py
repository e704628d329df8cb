"""The learner: one method with its backbone and token bank, learning stage after stage.

Experiments and model folders drive the same learner. It knows stages, tokens and classes by
number; it knows nothing of folders, names, test images or the truth.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from goal.backbone.tail import Tail
from goal.backbone.tokens import SomeTokens, Tokens, TokenSource, drawn
from goal.backbone.trunk import Backbone
from goal.bank.bank import TokenBank
from goal.common.arrays import IntArray
from goal.common.errors import GoalError, pick
from goal.common.process import Pause
from goal.common.progress import Reporter
from goal.common.seeding import stream
from goal.common.wording import counted
from goal.counting.counter import Counter, most_new
from goal.counting.estimators import Count
from goal.data.images import Images
from goal.distributed import agree, by_first
from goal.learning.shared_base import SharedBase
from goal.learning.trainer import EpochRecord, StageTrainer
from goal.methods.base import LabelledStage, Method, Outputs, Stage, classes_of, restore
from goal.methods.registry import METHODS
from goal.numerics.copies import originals
from goal.numerics.simplex import UNOWNED, VertexLedger
from goal.settings.settings import Settings

_LEAST_ROOM = 128
_COMPARED = 100_000  # images among which copies are looked for
_NOTED = 100_000  # images that the means of new classes are taken from


def room_for(settings: Settings, base_classes: int) -> int:
    """Classes to make room for where nobody knows how many will come: as the simplex allows."""
    wanted = max(_LEAST_ROOM, 4 * base_classes)
    width = getattr(settings.method, "projector_out", wanted)
    return max(base_classes, min(wanted, int(width)))


class TokenReader(Protocol):
    """Gives the tokens of images: the token bank, or the feature of each image in their place."""

    @property
    def fingerprint(self) -> str:
        """What computed them, and how."""

    def open(
        self,
        images: Images,
        ids: IntArray,
        augmented_views: bool,
        skipped: dict[int, str] | None = None,
    ) -> TokenSource:
        """Tokens of ``images[ids]``; unreadable ones are entered in `skipped`, if it is there."""


def learner_on_tokens(
    settings: Settings,
    backbone: Backbone,
    capacity: int,
    device: torch.device,
    reporter: Reporter,
) -> "Learner":
    """Build a learner that trains a tail on tokens of the token bank."""
    bank = TokenBank(backbone.trunk.to(device), settings.transform, settings.bank, reporter)
    return Learner(settings, backbone.tail, bank, capacity, device, reporter)


class Learner:
    """Learns stages, one after the other, and answers questions about images.

    Attributes:
        method: The method.
        bank: Where tokens come from.
        counter: Counts new classes.
    """

    def __init__(
        self,
        settings: Settings,
        tail: Tail,
        bank: TokenReader,
        capacity: int,
        device: torch.device,
        reporter: Reporter,
    ) -> None:
        """Build the method, untrained.

        Args:
            settings: All settings.
            tail: The backbone's tail; it becomes the method's.
            bank: Gives the tokens of images.
            capacity: Classes to make room for.
            device: Where to compute.
            reporter: Told how far the work has come.
        """
        self.settings = settings
        self.device = device
        self.reporter = reporter
        self.bank = bank
        self.counter = Counter(tail.to(device), settings.seed)
        build = pick(METHODS, settings.method.name, "method").method.build
        self.method: Method = build(
            settings.method, tail, capacity, stream(settings.seed, "method")
        )
        self.method.to(device).eval()

    # -- stages -----------------------------------------------------------------------------------

    def tokens(
        self, images: Images, ids: IntArray, index: int, skipped: dict[int, str] | None = None
    ) -> TokenSource:
        """Tokens for learning stage `index`: with random views only if the method trains in it."""
        return self.bank.open(images, ids, self.method.trains(index), skipped)

    def once(self, tokens: TokenSource) -> TokenSource:
        """A stage's images without near-copies of others, which teach nothing more.

        Where the method knows how far apart images usually are, and up to 100,000 of them.
        """
        if not self.method.usual_gap or not 0 < len(tokens) <= _COMPARED:
            return tokens
        features = tokens.clean(torch.arange(len(tokens))).cls.numpy()
        first = originals(features, self.method.usual_gap)
        kept = torch.from_numpy(np.unique(first))
        if len(kept) == len(tokens):
            return tokens
        copies = counted(len(tokens) - len(kept), "image")
        self.reporter.say(f"Left out as near-copies of others: {copies}.")
        return SomeTokens(tokens, kept)

    def count_new(self, tokens: TokenSource, index: int) -> Count:
        """Estimate how many classes are new in a stage's images, and how sure that is."""
        most = most_new(len(tokens), self.free)
        return by_first(lambda: self.counter.count(tokens, index, most))

    def learn(
        self,
        stage: Stage,
        history: list[EpochRecord],
        *,
        saved: dict[str, Any] | None = None,
        keep: Callable[[dict[str, Any]], None] = lambda state: None,
        judge: Callable[[], float] | None = None,
        shared: SharedBase | None = None,
    ) -> None:
        """Learn a stage: begin, train, end.

        Args:
            stage: The stage.
            history: Where the mean loss terms of each epoch are entered.
            saved: What `keep` was given when this stage was interrupted, to go on from there.
            keep: Takes everything that an interrupted stage needs, now and then.
            judge: Scores the method; the epoch with the highest score is kept, not the last one.
            shared: Where other runs share this very stage, already trained.
        """
        rng = stream(self.settings.seed, "stage", stage.index)
        if saved is None:
            self.method.begin_stage(stage, rng)
        else:
            self.restore(saved["method"])
        trainer = StageTrainer(self.method, stage, self.settings.training, rng)
        if saved is not None:
            trainer.load_state_dict(saved["trainer"])
        selection = _Selection(self.method, judge, saved and saved.get("best"))
        epochs = _Epochs(self, trainer, selection, history, keep)
        if self.method.trains(stage.index):
            self.method.fit_stage(stage, lambda: epochs.run(shared))
        self.method.end_stage(stage, rng)
        agree(self.method.state_dict().values())

    def note_classes(self, stage: Stage) -> None:
        """Let the counter know the classes of a stage that has been learned."""
        if isinstance(stage, LabelledStage):
            self.counter.note_labelled(stage.tokens, stage.labels)
        else:
            rng = stream(self.settings.seed, "note", stage.index)
            some = SomeTokens(stage.tokens, drawn(stage.tokens, _NOTED, rng))
            classes = classes_of(self.method, some)
            self.counter.note_found(some, classes, stage.num_known)
        agree([self.counter.means])

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over a method's saved state."""
        restore(self.method, self.method.carried_over(state))
        self.method.to(self.device).eval()

    # -- vertices ---------------------------------------------------------------------------------

    @property
    def ledger(self) -> VertexLedger | None:
        """Which class owns which vertex, where the method has any."""
        ledger = getattr(self.method, "ledger", None)
        return ledger if isinstance(ledger, VertexLedger) else None

    @property
    def free(self) -> int | None:
        """Number of vertices without a class, where every class needs one."""
        ledger = self.ledger if self.method.needs_vertices else None
        return None if ledger is None else len(ledger.free())

    def vertices(self, first: int, end: int) -> list[int | None]:
        """Vertex of each class from number `first` up to `end`."""
        ledger = self.ledger
        if ledger is None:
            return [None] * (end - first)
        found = ledger.vertex_of(torch.arange(first, end, device=ledger.owners.device))
        return [None if vertex == UNOWNED else vertex for vertex in found.tolist()]

    # -- looking ----------------------------------------------------------------------------------

    @torch.no_grad()
    def look(self, tokens: Tokens) -> tuple[Outputs, Tensor]:
        """What the method makes of some images, and their scores; each image by itself."""
        outputs = self.method.infer(tokens.to(self.device))
        return outputs, self.method.class_scores(outputs)


class _Epochs:
    """The epochs of one stage: told, noted in the history, and kept now and then."""

    def __init__(
        self,
        learner: Learner,
        trainer: StageTrainer,
        selection: "_Selection",
        history: list[EpochRecord],
        keep: Callable[[dict[str, Any]], None],
    ) -> None:
        self._learner, self._trainer, self._selection = learner, trainer, selection
        self._history, self._keep = history, keep
        self._pause = Pause(learner.settings.training.checkpoint_seconds)

    def run(self, shared: SharedBase | None) -> None:
        """Run those that are left, or take over the stage as another run has trained it."""
        reporter, fresh = self._learner.reporter, self._trainer.epoch == 0
        found = shared.load(self._trainer, reporter) if shared and fresh else None
        if found is None:
            self._trainer.run(self._done, reporter)
            self._selection.take()
            if shared:
                shared.save(self._trainer, self._history)
            return
        reporter.say("Stage 0: taking the base model that an earlier run trained.")
        for record in found:
            self._enter(record)

    def _enter(self, record: EpochRecord) -> None:
        self._history.append(record)
        self._learner.reporter.epoch_done(record, len(self._history))

    def _done(self, record: EpochRecord) -> None:
        self._enter(record)
        self._selection.look()
        if self._pause.over():
            self._keep(self._state())
            self._pause.restart()

    def _state(self) -> dict[str, Any]:
        stage = self._trainer.stage
        return {
            "method": self._learner.method.state_dict(),
            "trainer": self._trainer.state_dict(),
            "best": self._selection.best,
            "classes": [stage.num_known, stage.num_new],
        }


class _Selection:
    """Keeps the best epoch's model by some score; does nothing without one."""

    def __init__(
        self,
        method: Method,
        judge: Callable[[], float] | None,
        best: dict[str, Any] | None,
    ) -> None:
        self._method = method
        self._judge = judge
        self.best = best

    def look(self) -> None:
        """Score the method as it is now."""
        if self._judge is None:
            return
        score = self._judge()
        if self.best is None or score > self.best["all"]:
            state = {key: value.clone() for key, value in self._method.state_dict().items()}
            self.best = {"all": score, "method": state}

    def take(self) -> None:
        """Go on with the best model."""
        if self.best is not None:
            restore(self._method, self.best["method"])


def require_backbone(learner: Learner, fingerprint: str) -> None:
    """Raise an error if the backbone is not the one with this fingerprint."""
    if fingerprint != learner.bank.fingerprint:
        raise GoalError(
            f"The backbone {learner.settings.backbone.name} is not the one this model was fitted "
            f"with: its weights or their use differ. Give the former one: --backbone FOLDER."
        )
